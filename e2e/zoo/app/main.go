// Command app is the program of which ko makes an image.
package main

func main() {
	println("hello")
}
