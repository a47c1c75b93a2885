package main

import (
	"fmt"
	"maps"
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

// A Bill is an object of the cluster, a price, or an expected sum over Pods. All lines of the cases together are one cluster.
type Bill struct {
	Pod   *v1.Pod      `json:"pod,omitempty"`
	Node  *BilledNode  `json:"node,omitempty"`
	Image *BilledImage `json:"image,omitempty"`
	Price *HourlyPrice `json:"price,omitempty"`
	Sum   *Sum         `json:"sum,omitempty"`
}

// A BilledNode is a node with its capacity.
type BilledNode struct {
	Name         string          `json:"name"`
	Architecture string          `json:"architecture"`
	Capacity     v1.ResourceList `json:"capacity"`
}

// A BilledImage is a repository with the architectures of its image. It has none if the registry lacks the image.
type BilledImage struct {
	Name          string   `json:"name"`
	Architectures []string `json:"architectures"`
}

// An HourlyPrice is the price of a CPU and of a GiB of memory for an hour.
type HourlyPrice struct {
	Architecture string `json:"architecture"`
	VCPU         string `json:"vcpu"`
	GiB          string `json:"gib"`
}

// A Sum is a sum over all Pods, or over the Pods of a namespace or workload. Costs are in millionths of the currency a month, and CPU in
// thousandths of a core.
type Sum struct {
	// Namespace, or namespace/kind/name of a workload. Empty for all Pods.
	Of string `json:"of"`
	// Costs today, and costs if each eligible Pod ran on the cheapest architecture.
	Today *big.Int `json:"today"`
	After *big.Int `json:"after"`
	// Savings that are lost because an image lacks an architecture or is unknown.
	Kept *big.Int `json:"kept"`
	// Number of Pods without costs today, because they have no node or their node's architecture has no price.
	Uncounted int64 `json:"uncounted"`
	// CPU of eligible Pods, in all and by the architecture of their nodes.
	Eligible int64            `json:"eligible"`
	On       map[string]int64 `json:"on"`
	// CPU of eligible Pods without tolerations, created before and after the webhook.
	Waiting int64 `json:"waiting"`
	Since   int64 `json:"since"`
	// CPU of Pods that would be eligible, but allow only one of the two architectures.
	Bound int64 `json:"bound"`
	// Costs of all nodes.
	Nodes *big.Int `json:"nodes,omitempty"`
}

// webhookCreation is the time at which the webhook of the cluster was created.
var webhookCreation = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var hourlyPrices = []HourlyPrice{
	{Architecture: "amd64", VCPU: "0.0413", GiB: "0.005177"},
	// More expensive for Pods that request much memory and little CPU.
	{Architecture: "arm64", VCPU: "0.033100001", GiB: "0.0071"},
}

var billedImages = []BilledImage{
	{Name: "both", Architectures: []string{"amd64", "arm64"}},
	{Name: "more", Architectures: []string{"amd64", "arm64", "s390x"}},
	{Name: "old", Architectures: []string{"amd64"}},
	{Name: "gone"},
}

// bills returns the lines of one cluster: prices, images, nodes, random Pods, and the sums.
func bills(r *rand.Rand, random int) []Bill {
	var all []Bill
	for _, price := range hourlyPrices {
		all = append(all, Bill{Price: &price})
	}
	for _, image := range billedImages {
		all = append(all, Bill{Image: &image})
	}
	architectures := map[string]string{}
	nodeCosts := new(big.Int)
	for i, architecture := range []string{"amd64", "amd64", "arm64", "s390x", "amd64", "arm64"} {
		node := BilledNode{
			Name:         fmt.Sprintf("node-%d", i),
			Architecture: architecture,
			Capacity: v1.ResourceList{
				v1.ResourceCPU:    resource.MustParse(pick(r, "640", "191910m", "1024")),
				v1.ResourceMemory: resource.MustParse(pick(r, "2Ti", "1984036800Ki", "4T")),
			},
		}
		architectures[node.Name] = architecture
		if cost := monthlyCost(architecture, node.Capacity); cost != nil {
			nodeCosts.Add(nodeCosts, cost)
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
		for _, name := range []string{"", pod.Namespace, pod.Namespace + "/" + workload} {
			sum := sums[name]
			if sum == nil {
				sum = &Sum{Of: name, Today: new(big.Int), After: new(big.Int), Kept: new(big.Int), On: map[string]int64{}}
				sums[name] = sum
			}
			sum.add(pod, architectures[pod.Spec.NodeName])
		}
	}
	sums[""].Nodes = nodeCosts
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		all = append(all, Bill{Sum: sums[name]})
	}
	return all
}

// add adds a Pod on a node of this architecture.
func (s *Sum) add(pod *v1.Pod, architecture string) {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	isOptedOut := isOptedOut(pod)
	isBlocked := isBlocked(pod)
	allowed := allowedArchitectures(pod)
	if !isOptedOut && !isBlocked {
		s.addCPU(pod, architecture, requests.Cpu().MilliValue(), len(allowed) == 2)
	}
	today := monthlyCost(architecture, requests)
	if today == nil {
		s.Uncounted++
		return
	}
	s.Today.Add(s.Today, today)
	cheapest := today
	// A Pod that allows only one architecture stays where it is.
	if len(allowed) == 2 {
		for _, name := range allowed {
			if cost := monthlyCost(name, requests); cost.Cmp(cheapest) < 0 {
				cheapest = cost
			}
		}
	}
	switch {
	case isOptedOut:
		s.After.Add(s.After, today)
	case isBlocked:
		s.After.Add(s.After, today)
		s.Kept.Add(s.Kept, new(big.Int).Sub(today, cheapest))
	default:
		s.After.Add(s.After, cheapest)
	}
}

// addCPU adds the CPU of a Pod whose images run on both architectures of the pool.
func (s *Sum) addCPU(pod *v1.Pod, architecture string, millis int64, isEligible bool) {
	if !isEligible {
		s.Bound += millis
		return
	}
	s.Eligible += millis
	s.On[architecture] += millis
	if len(pod.Spec.Tolerations) > 0 {
		return
	}
	if pod.CreationTimestamp.Time.After(webhookCreation) {
		s.Since += millis
	} else {
		s.Waiting += millis
	}
}

// isOptedOut returns whether tolerarch ignores the Pod: by its namespace, by its label, or as part of a DaemonSet.
func isOptedOut(pod *v1.Pod) bool {
	if pod.Namespace == "off" || pod.Labels["tolerarch.io/mode"] == "off" {
		return true
	}
	return slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == "DaemonSet" })
}

// isBlocked returns whether an image lacks an architecture of the pool, or its platforms are unknown.
func isBlocked(pod *v1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(container v1.Container) bool {
		return container.Image == "old" || container.Image == "gone"
	})
}

// allowedArchitectures returns the architectures of the only pool that the Pod's node selector and affinity allow.
func allowedArchitectures(pod *v1.Pod) []string {
	var allowed []string
	for _, name := range []string{"amd64", "arm64"} {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubernetes.io/arch": name}}}
		if fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); fits && err == nil {
			allowed = append(allowed, name)
		}
	}
	return allowed
}

// monthlyCost returns the cost of requests in a month of 730 hours, in millionths, or nil if the architecture has no price.
func monthlyCost(architecture string, requests v1.ResourceList) *big.Int {
	for _, price := range hourlyPrices {
		if price.Architecture != architecture {
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
		cost := vcpus.Mul(vcpus, rat(price.VCPU))
		cost.Add(cost, gibs.Mul(gibs, rat(price.GiB)))
		cost.Mul(cost, big.NewRat(730*1_000_000, 1))
		cost.Add(cost, big.NewRat(1, 2))
		return new(big.Int).Quo(cost.Num(), cost.Denom())
	}
	return nil
}

// billedPod returns a random Pod, and its workload as kind/name.
func billedPod(r *rand.Rand, i int) (*v1.Pod, string) {
	container := func(name string) v1.Container {
		requests := v1.ResourceList{}
		if chance(r, 85) {
			requests[v1.ResourceCPU] = resource.MustParse(pick(r, "250m", "0.1", "1", "1500m", "333m", "7", "100u", "0"))
		}
		if chance(r, 85) {
			requests[v1.ResourceMemory] = resource.MustParse(pick(r, "64Mi", "128M", "1Gi", "1500Ki", "12Gi", "0.5Gi", "1e9", "7"))
		}
		image := pick(r, "both", "both", "both", "both", "more", "more", "old", "gone")
		return v1.Container{Name: name, Image: image, Resources: v1.ResourceRequirements{Requests: requests}}
	}
	pod := &v1.Pod{}
	pod.Name = fmt.Sprintf("pod-%d", i)
	pod.Namespace = pick(r, "shop", "shop", "data", "ops", "off")
	pod.CreationTimestamp = metav1.NewTime(webhookCreation.Add(time.Duration(r.IntN(200)-100) * time.Hour))
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
		pod.Spec.NodeSelector = map[string]string{"kubernetes.io/arch": pick(r, "amd64", "amd64", "arm64")}
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
	kind := pick(r, "StatefulSet", "StatefulSet", "StatefulSet", "DaemonSet", "Pod")
	if kind == "Pod" {
		return pod, "Pod/" + pod.Name
	}
	name := pick(r, "web", "db", "mail", "agent")
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: &yes}}
	return pod, kind + "/" + name
}
