// What nodes run in the scenarios: it says what it was built for, and waits until it is told to end. With an argument it
// says that alone, as a credential plugin does.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Println(os.Args[1])
		return
	}
	fmt.Println("built for", runtime.GOARCH)
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	<-told
}
