// What ko makes an image of.
package main

func main() {
	println("hello")
}
