package main

import (
	"encoding/json"
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// A Fitted is the spec of a Pod and the labels of a node, with whether the node selector and the required node affinity allow the node.
// The scheduler and the DaemonSet controller use the same function.
type Fitted struct {
	Spec   json.RawMessage   `json:"spec"`
	Labels map[string]string `json:"labels"`
	Fits   bool              `json:"fits"`
}

// fitted returns a case with the answer of component-helpers.
func fitted(spec v1.PodSpec, labels map[string]string) Fitted {
	text, err := json.Marshal(spec)
	must(err)
	pod := &v1.Pod{Spec: spec}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: labels}}
	// A spec that cannot be parsed matches no node.
	fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return Fitted{Spec: text, Labels: labels, Fits: fits && err == nil}
}

// fits returns random specs that the API server accepts, with labels of nodes.
func fits(r *rand.Rand, random int) []Fitted {
	keys := []string{"kubernetes.io/arch", "beta.kubernetes.io/arch", "zone", "cores", "gpu"}
	values := []string{"amd64", "arm64", "a", "", "8", "16"}
	someValues := func(maximum int) []string {
		var list []string
		for range 1 + r.IntN(maximum) {
			list = append(list, pick(r, values...))
		}
		return list
	}
	var cases []Fitted
	for range 2 * random {
		labels := map[string]string{}
		for _, key := range keys {
			if chance(r, 60) {
				labels[key] = pick(r, values...)
			}
		}
		var spec v1.PodSpec
		if chance(r, 40) {
			spec.NodeSelector = map[string]string{pick(r, keys...): pick(r, values...)}
		}
		if chance(r, 85) {
			var terms []v1.NodeSelectorTerm
			for range r.IntN(4) {
				var term v1.NodeSelectorTerm
				for range r.IntN(3) {
					requirement := v1.NodeSelectorRequirement{Key: pick(r, keys...)}
					requirement.Operator = pick(r, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists,
						v1.NodeSelectorOpDoesNotExist, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt)
					switch requirement.Operator {
					case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
						requirement.Values = someValues(3)
					case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
						requirement.Values = []string{pick(r, "7", "8", "0", "9223372036854775807")}
					}
					term.MatchExpressions = append(term.MatchExpressions, requirement)
				}
				terms = append(terms, term)
			}
			required := &v1.NodeSelector{NodeSelectorTerms: terms}
			spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
		}
		cases = append(cases, fitted(spec, labels))
	}
	return cases
}
