// Command app is the program that ko builds into an image.
package main

func main() {
	println("hello")
}
