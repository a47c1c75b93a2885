package main

import (
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// A Tolerated is a toleration and a taint, with whether the toleration tolerates the taint.
type Tolerated struct {
	Toleration v1.Toleration `json:"toleration"`
	Taint      v1.Taint      `json:"taint"`
	Tolerates  bool          `json:"tolerates"`
}

// tolerations returns random tolerations with taints. Comparison operators take effect, as with the feature gate
// TaintTolerationComparisonOperators.
func tolerations(r *rand.Rand, random int) []Tolerated {
	keys := []string{"sla", "sla", "sla", "kubernetes.io/arch"}
	values := []string{"", "arm64", "950", "-950", "0", "-0", "0950", "+950", "951", "1000", "9223372036854775807", "9223372036854775808"}
	effects := []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute}
	operators := []v1.TolerationOperator{"", v1.TolerationOpEqual, v1.TolerationOpExists, v1.TolerationOpLt, v1.TolerationOpGt}
	var cases []Tolerated
	for range 2 * random {
		toleration := v1.Toleration{Key: pick(r, keys...), Operator: pick(r, operators...)}
		if toleration.Operator != v1.TolerationOpExists {
			toleration.Value = pick(r, values...)
		} else if chance(r, 30) {
			toleration.Key = ""
		}
		if chance(r, 30) {
			toleration.Effect = pick(r, effects...)
		}
		taint := v1.Taint{Key: pick(r, keys...), Value: pick(r, values...), Effect: pick(r, effects...)}
		tolerates := toleration.ToleratesTaint(klog.Background(), &taint, true)
		cases = append(cases, Tolerated{Toleration: toleration, Taint: taint, Tolerates: tolerates})
	}
	return cases
}
