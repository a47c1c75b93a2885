package main

import (
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes/scheme"
)

// An OwnKind is a built-in kind of Kubernetes in one of its versions.
type OwnKind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// ownKinds returns the built-in kinds that manifests may have. These are no lists, options or parts of the protocol.
func ownKinds() []OwnKind {
	protocol := []string{"APIGroup", "APIVersions", "RangeAllocation", "SerializedReference", "WatchEvent"}
	var all []OwnKind
	for kind := range scheme.Scheme.AllKnownTypes() {
		isPart := strings.HasSuffix(kind.Kind, "List") || strings.HasSuffix(kind.Kind, "Options")
		if kind.Version != "__internal" && !isPart && !slices.Contains(protocol, kind.Kind) {
			all = append(all, OwnKind{kind.Group, kind.Version, kind.Kind})
		}
	}
	slices.SortFunc(all, func(a, b OwnKind) int {
		return strings.Compare(a.Group+" "+a.Version+" "+a.Kind, b.Group+" "+b.Version+" "+b.Kind)
	})
	return all
}
