// Command manifests checks the rendered manifests of tolerarch without a cluster:
//
//	cd e2e/manifests && go tool kustomize build ../../manifests | go run .
//
// Every document is decoded as strictly as an API server can: unknown fields and duplicate keys are faults. Then the program
// checks what no schema can: names that several objects share are the same, and promises such as "fails open" and "has no
// rights" are kept.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	items, err := decode(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
	items = check(items)
	if failed := report(os.Stdout, items); failed > 0 {
		os.Exit(1)
	}
}

// report prints the result of each item, and returns how many items have faults.
func report(w io.Writer, items []*item) (failed int) {
	for _, it := range items {
		if len(it.faults) == 0 {
			fmt.Fprintln(w, "ok", it.id)
			continue
		}
		failed++
		for _, fault := range it.faults {
			fmt.Fprintf(w, "FAILED %s: %s\n", it.id, fault)
		}
	}
	fmt.Fprintf(w, "%d passed, %d failed\n", len(items)-failed, failed)
	return failed
}
