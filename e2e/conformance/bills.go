package main

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Bill is a line of the cases: an object of the cluster, a price, or an expected sum over Pods.
type Bill struct {
	Pod   *v1.Pod `json:"pod,omitempty"`
	Node  *Billed `json:"node,omitempty"`
	Image *Image  `json:"image,omitempty"`
	Price *Hour   `json:"price,omitempty"`
	Sum   *Sum    `json:"sum,omitempty"`
}

// Billed is a node with its capacity.
type Billed struct {
	Name         string          `json:"name"`
	Architecture string          `json:"architecture"`
	Capacity     v1.ResourceList `json:"capacity"`
}

// Image is a repository with the architectures of its image. It has none if the registry lacks the image.
type Image struct {
	Name          string   `json:"name"`
	Architectures []string `json:"architectures"`
}

// Hour has the prices of an hour.
type Hour struct {
	Architecture string `json:"architecture"`
	VCPU         string `json:"vcpu"`
	GiB          string `json:"gib"`
}

// Sum is a sum over all Pods, or over those of a namespace or workload. Money is in millionths a month, CPU in thousandths of
// a core.
type Sum struct {
	Of        string           `json:"of"`
	Today     *big.Int         `json:"today"`
	After     *big.Int         `json:"after"`
	Kept      *big.Int         `json:"kept"`
	Uncounted int64            `json:"uncounted"`
	Eligible  int64            `json:"eligible"`
	On        map[string]int64 `json:"on"`
	Waiting   int64            `json:"waiting"`
	Since     int64            `json:"since"`
	Bound     int64            `json:"bound"`
	Nodes     *big.Int         `json:"nodes,omitempty"`
}

// installed is the time at which the webhook of the cluster was created.
var installed = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var hours = []Hour{
	{Architecture: "amd64", VCPU: "0.0413", GiB: "0.005177"},
	// More expensive for Pods that request much memory and little CPU.
	{Architecture: "arm64", VCPU: "0.033100001", GiB: "0.0071"},
}

var repositories = []Image{
	{Name: "both", Architectures: []string{"amd64", "arm64"}},
	{Name: "more", Architectures: []string{"amd64", "arm64", "s390x"}},
	{Name: "old", Architectures: []string{"amd64"}},
	{Name: "gone"},
}

func bills(r *rand.Rand, random int) []Bill {
	var all []Bill
	for _, hour := range hours {
		all = append(all, Bill{Price: &hour})
	}
	for _, image := range repositories {
		all = append(all, Bill{Image: &image})
	}
	architectures := map[string]string{}
	nodes := new(big.Int)
	for i, architecture := range []string{"amd64", "amd64", "arm64", "s390x", "amd64", "arm64"} {
		node := Billed{
			Name:         fmt.Sprintf("node-%d", i),
			Architecture: architecture,
			Capacity: v1.ResourceList{
				v1.ResourceCPU:    resource.MustParse(one(r, "640", "191910m", "1024")),
				v1.ResourceMemory: resource.MustParse(one(r, "2Ti", "1984036800Ki", "4T")),
			},
		}
		architectures[node.Name] = architecture
		if cost := price(architecture, node.Capacity); cost != nil {
			nodes.Add(nodes, cost)
		}
		all = append(all, Bill{Node: &node})
	}
	sums := map[string]*Sum{}
	for i := range 2 * random {
		pod, workload := billedPod(r, i)
		all = append(all, Bill{Pod: pod})
		if pod.Status.Phase == v1.PodSucceeded {
			continue
		}
		for _, of := range []string{"", pod.Namespace, pod.Namespace + "/" + workload} {
			sum := sums[of]
			if sum == nil {
				sum = &Sum{Of: of, Today: new(big.Int), After: new(big.Int), Kept: new(big.Int), On: map[string]int64{}}
				sums[of] = sum
			}
			sum.add(pod, architectures[pod.Spec.NodeName])
		}
	}
	sums[""].Nodes = nodes
	var names []string
	for of := range sums {
		names = append(names, of)
	}
	slices.Sort(names)
	for _, of := range names {
		all = append(all, Bill{Sum: sums[of]})
	}
	return all
}

func (s *Sum) add(pod *v1.Pod, architecture string) {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	millis := requests.Cpu().MilliValue()
	skipped := pod.Namespace == "off" || pod.Labels["tolerarch.io/mode"] == "off"
	for _, owner := range pod.OwnerReferences {
		skipped = skipped || owner.Kind == "DaemonSet"
	}
	lacks, unknown := false, false
	for _, container := range append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...) {
		lacks = lacks || container.Image == "old"
		unknown = unknown || container.Image == "gone"
	}
	// Platforms of the only pool that the Pod itself allows. A Pod that allows only one of them stays where it is.
	var allowed []string
	for _, name := range []string{"amd64", "arm64"} {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubernetes.io/arch": name}}}
		if fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); fits && err == nil {
			allowed = append(allowed, name)
		}
	}
	if !skipped && !lacks && !unknown {
		if len(allowed) == 2 {
			s.Eligible += millis
			s.On[architecture] += millis
			if len(pod.Spec.Tolerations) == 0 && pod.CreationTimestamp.Time.After(installed) {
				s.Since += millis
			} else if len(pod.Spec.Tolerations) == 0 {
				s.Waiting += millis
			}
		} else {
			s.Bound += millis
		}
	}
	today := price(architecture, requests)
	if today == nil {
		s.Uncounted++
		return
	}
	s.Today.Add(s.Today, today)
	least := today
	for _, name := range allowed {
		if cost := price(name, requests); len(allowed) == 2 && cost.Cmp(least) < 0 {
			least = cost
		}
	}
	switch {
	case skipped:
		s.After.Add(s.After, today)
	case lacks || unknown:
		s.After.Add(s.After, today)
		s.Kept.Add(s.Kept, new(big.Int).Sub(today, least))
	default:
		s.After.Add(s.After, least)
	}
}

// price returns the cost of requests in a month of 730 hours, in millionths, or nil without a price.
func price(architecture string, requests v1.ResourceList) *big.Int {
	for _, hour := range hours {
		if hour.Architecture != architecture {
			continue
		}
		rat := func(text string) *big.Rat {
			value, ok := new(big.Rat).SetString(text)
			if !ok {
				panic(text)
			}
			return value
		}
		vcpus := big.NewRat(requests.Cpu().MilliValue(), 1000)
		gibs := big.NewRat(requests.Memory().Value(), 1<<30)
		cost := vcpus.Mul(vcpus, rat(hour.VCPU))
		cost.Add(cost, gibs.Mul(gibs, rat(hour.GiB)))
		cost.Mul(cost, big.NewRat(730*1_000_000, 1))
		cost.Add(cost, big.NewRat(1, 2))
		return new(big.Int).Quo(cost.Num(), cost.Denom())
	}
	return nil
}

// billedPod returns a Pod, with kind and name of its workload.
func billedPod(r *rand.Rand, i int) (*v1.Pod, string) {
	container := func(name string) v1.Container {
		requests := v1.ResourceList{}
		if chance(r, 85) {
			requests[v1.ResourceCPU] = resource.MustParse(one(r, "250m", "0.1", "1", "1500m", "333m", "7", "100u", "0"))
		}
		if chance(r, 85) {
			requests[v1.ResourceMemory] = resource.MustParse(one(r, "64Mi", "128M", "1Gi", "1500Ki", "12Gi", "0.5Gi", "1e9", "7"))
		}
		image := one(r, "both", "both", "both", "both", "more", "more", "old", "gone")
		return v1.Container{Name: name, Image: image, Resources: v1.ResourceRequirements{Requests: requests}}
	}
	pod := &v1.Pod{}
	pod.Name = fmt.Sprintf("pod-%d", i)
	pod.Namespace = one(r, "shop", "shop", "data", "ops", "off")
	pod.CreationTimestamp = metav1.NewTime(installed.Add(time.Duration(r.IntN(200)-100) * time.Hour))
	for n := range 1 + r.IntN(3) {
		pod.Spec.Containers = append(pod.Spec.Containers, container(fmt.Sprintf("c%d", n)))
	}
	for n := range r.IntN(3) {
		init := container(fmt.Sprintf("i%d", n))
		if always := v1.ContainerRestartPolicyAlways; chance(r, 50) {
			init.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, init)
	}
	if chance(r, 10) {
		pod.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("33m"), v1.ResourceMemory: resource.MustParse("100Mi")}
	}
	if chance(r, 90) {
		pod.Spec.NodeName = fmt.Sprintf("node-%d", r.IntN(6))
	}
	if chance(r, 15) {
		pod.Spec.NodeSelector = map[string]string{"kubernetes.io/arch": one(r, "amd64", "amd64", "arm64")}
	}
	if chance(r, 30) {
		pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	}
	if chance(r, 5) {
		pod.Labels = map[string]string{"tolerarch.io/mode": "off"}
	}
	if chance(r, 5) {
		pod.Status.Phase = v1.PodSucceeded
	}
	kind := one(r, "StatefulSet", "StatefulSet", "StatefulSet", "DaemonSet", "Pod")
	if kind == "Pod" {
		return pod, "Pod/" + pod.Name
	}
	name := one(r, "web", "db", "mail", "agent")
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: &yes}}
	return pod, kind + "/" + name
}
