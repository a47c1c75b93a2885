// Command program is what nodes run in the scenarios. It prints the architecture it was built for, and waits for a signal to
// end. With an argument it prints only that argument, as a credential plugin does.
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
