// Command program is what the containers of the scenarios run. It prints the architecture that it was built for, and ends at a
// signal. With an argument, it prints only the argument, and so serves as a credential plugin.
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
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
}
