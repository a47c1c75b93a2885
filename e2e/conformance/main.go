// Command conformance writes cases with the answers of the libraries that nodes, kubectl and the cluster-autoscaler use, and of
// Kubernetes' own packages. Unit tests of tolerarch compare their answers with these.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

func main() {
	out := flag.String("out", "cases", "directory to write to")
	seed := flag.Uint64("seed", 1, "seed of the random cases")
	random := flag.Int("random", 150, "number of random cases of each kind, beside the fixed ones")
	flag.Parse()
	if err := os.MkdirAll(*out, 0o755); err != nil {
		log.Fatal(err)
	}
	for name, cases := range generate(*seed, *random) {
		if err := os.WriteFile(filepath.Join(*out, name), cases, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// generate returns the content of the files by their names. The same seed gives the same bytes.
func generate(seed uint64, random int) map[string][]byte {
	// containerd (logrus) and Kubernetes (klog) log what they ignore, which most of these cases contain.
	logrus.SetOutput(io.Discard)
	klog.SetLogger(klog.Logger{})
	source := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	return map[string][]byte{
		"references.json":   lines(references(source(1), random)),
		"patterns.json":     lines(patterns(source(2), random)),
		"keyrings.json":     lines(keyrings(source(3), random)),
		"indexes.json":      lines(indexes(source(4), random)),
		"hosts.json":        lines(hosts(source(5), random)),
		"fields.json":       lines(fields()),
		"stored.json":       lines(storedPods(source(6), random)),
		"certificates.json": lines(certificates(source(7), random)),
		"rewrites.json":     lines(rewrites(source(8), random)),
		"documents.json":    lines(documents(source(9), random)),
		"yaml.json":         lines(yamlTexts(source(11), random)),
		"heads.json":        lines(heads(source(10), random)),
		"kinds.json":        lines(kinds(source(66), random)),
		"ownkinds.json":     lines(ownKinds()),
		"priorities.json":   lines(priorityCases(source(67), random)),
		"kubeconfigs.json":  lines(kubeconfigs(source(20), random)),
		"fits.json":         lines(fits(source(21), random)),
		"bills.json":        lines(bills(source(22), random)),
		"tolerations.json":  lines(tolerations(source(23), random)),
	}
}

// lines returns a JSON array with one case on each line, so that a diff shows the cases that differ.
func lines[T any](cases []T) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	separator := "[\n"
	for _, item := range cases {
		text.WriteString(separator)
		must(encoder.Encode(item))
		// Encode ends with a line feed, but the comma comes first.
		text.Truncate(text.Len() - 1)
		separator = ",\n"
	}
	text.WriteString("\n]\n")
	return text.Bytes()
}

// pick returns one of the values at random.
func pick[T any](r *rand.Rand, values ...T) T {
	return values[r.IntN(len(values))]
}

// chance returns true with a probability in percent.
func chance(r *rand.Rand, percent int) bool {
	return r.IntN(100) < percent
}

// must panics on an error that only a bug of this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
