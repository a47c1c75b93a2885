package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// A Field is a member of a Pod or a DaemonSet that is a map, or a message with the size that it has when empty.
type Field struct {
	Field string `json:"field"`
	Empty int    `json:"empty,omitempty"`
	Map   bool   `json:"map,omitempty"`
}

// fields returns the maps and messages in Pods and DaemonSets.
func fields() []Field {
	seen := map[Field]bool{}
	var walk func(message reflect.Type)
	walk = func(message reflect.Type) {
		for i := range message.NumField() {
			field := message.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			inner, isMap := field.Type, field.Type.Kind() == reflect.Map
			for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, inner.Kind()) {
				inner = inner.Elem()
			}
			// A new object has no status of a kubelet.
			if name == "status" {
				continue
			}
			if isMap {
				seen[Field{Field: name, Map: true}] = true
				continue
			}
			encodable, ok := reflect.New(inner).Interface().(interface{ Size() int })
			if !ok || slices.Contains(opaqueMessages, inner) {
				continue
			}
			if name != "" {
				entry := Field{Field: name, Empty: encodable.Size()}
				if seen[entry] {
					continue
				}
				seen[entry] = true
			}
			walk(inner)
		}
	}
	walk(reflect.TypeFor[corev1.Pod]())
	walk(reflect.TypeFor[appsv1.DaemonSet]())
	all := slices.Collect(maps.Keys(seen))
	slices.SortFunc(all, func(a, b Field) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return all
}

// opaqueMessages are messages whose JSON is not an object with their fields.
var opaqueMessages = []reflect.Type{
	reflect.TypeFor[metav1.Time](), reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.FieldsV1](),
}

// A Stored is the JSON of a Pod, with the size of the request by which the API server stores the Pod in etcd. In the JSON, @items stands
// for a number of items, @n for the number of an item, and @fill for a number of letters.
type Stored struct {
	Pod   string `json:"pod"`
	Item  string `json:"item,omitempty"`
	Times int    `json:"times,omitempty"`
	Fill  int    `json:"fill"`
	// Size of the request with the fields that the API server sets after webhooks, and size with tolerarch's additions as well.
	Stored int `json:"stored"`
	With   int `json:"with"`
}

// etcdLimit is the maximum size of a request to etcd (--max-request-bytes).
const etcdLimit = 3 << 19

// skeletons are members of a Pod with an empty list or map, and one item of it.
var skeletons = []struct{ members, item string }{
	{`"spec":{"containers":[{"name":"c","image":"i","env":[@items]}]}`, `{"name":"A"}`},
	{`"spec":{"containers":[{"name":"c","image":"i","env":[@items]}]}`, `{"name":"A","value":"b"}`},
	{`"spec":{"containers":[{"name":"c","image":"i","env":[@items]}]}`, `{"name":"HTTP_PROXY","value":"http://proxy.example.com:3128/?a=b\u0026c=\u003cd\u003e"}`},
	{`"spec":{"containers":[{"name":"c","image":"i","env":[@items]}]}`, `{"name":"A","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}`},
	{`"spec":{"containers":[{"name":"c","image":"i","env":[@items]}]}`, `{"name":"A","valueFrom":{"secretKeyRef":{"key":"k"}}}`},
	{`"spec":{"containers":[{"name":"c","image":"i","env":[@items]}]}`, `{"name":"A","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"0"}}}`},
	{`"spec":{"containers":[{"name":"c","image":"i","env":[@items]}]}`, `{"name":"A","valueFrom":{"fileKeyRef":{"volumeName":"v","path":"p","key":"k"}}}`},
	{`"spec":{"containers":[{"name":"c","image":"i","envFrom":[@items]}]}`, `{"configMapRef":{"name":"a"}}`},
	{`"spec":{"containers":[{"name":"c","image":"i","volumeMounts":[@items]}]}`, `{"name":"a","mountPath":"/b"}`},
	{`"spec":{"containers":[{"name":"c","image":"i","volumeDevices":[@items]}]}`, `{"name":"a","devicePath":"/b"}`},
	{`"spec":{"containers":[{"name":"c","image":"i","ports":[@items]}]}`, `{"containerPort":1,"protocol":"TCP"}`},
	{`"spec":{"containers":[{"name":"c","image":"i","args":[@items]}]}`, `""`},
	{`"spec":{"containers":[{"name":"c","image":"i","args":[@items]}]}`, `"--an-argument=of-some-length"`},
	{`"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{@items}}}]}`, `"@n":"1"`},
	{`"spec":{"containers":[{"name":"c","image":"i","resources":{"claims":[@items]}}]}`, `{"name":"a"}`},
	{`"spec":{"containers":[{"name":"c","image":"i","restartPolicyRules":[@items]}]}`, `{"action":"Restart","exitCodes":{"operator":"In","values":[1]}}`},
	{`"spec":{"containers":[@items]}`, `{"name":"c","resources":{}}`},
	{`"spec":{"containers":[@items]}`, `{"name":"c","image":"i","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}`},
	{`"spec":{"containers":[@items]}`, `{"name":"c","image":"i","livenessProbe":{"httpGet":{"port":80}},"readinessProbe":{"tcpSocket":{"port":"a"}},"startupProbe":{"grpc":{"port":1}},"resources":{}}`},
	{`"spec":{"containers":null,"volumes":[@items]}`, `{"name":"a","emptyDir":{}}`},
	{`"spec":{"containers":null,"volumes":[@items]}`, `{"name":"a","configMap":{"name":"b","items":[{"key":"c","path":"d"}]}}`},
	{`"spec":{"containers":null,"volumes":[@items]}`, `{"name":"a","projected":{"sources":[{"downwardAPI":{"items":[{"path":"a","fieldRef":{"fieldPath":"b"}}]}},{"serviceAccountToken":{"path":"c"}}]}}`},
	{`"spec":{"containers":null,"volumes":[{"name":"a","projected":{"sources":[{"podCertificate":{"signerName":"s","keyType":"k","userAnnotations":{@items}}}]}}]}`, `"@n":"1"`},
	{`"spec":{"containers":null,"volumes":[{"name":"a","configMap":{"items":[@items]}}]}`, `{"key":"a","path":"b"}`},
	{`"spec":{"containers":null,"volumes":[{"name":"a","csi":{"driver":"d","volumeAttributes":{@items}}}]}`, `"@n":"1"`},
	{`"spec":{"containers":null,"volumes":[{"name":"a","flexVolume":{"driver":"d","options":{@items}}}]}`, `"@n":"1"`},
	{`"spec":{"containers":null,"tolerations":[@items]}`, `{"operator":"Exists"}`},
	{`"spec":{"containers":null,"tolerations":[@items]}`, `{}`},
	{`"spec":{"containers":null,"imagePullSecrets":[@items]}`, `{}`},
	{`"spec":{"containers":null,"hostAliases":[@items]}`, `{"ip":"::"}`},
	{`"spec":{"containers":null,"readinessGates":[@items]}`, `{"conditionType":"a"}`},
	{`"spec":{"containers":null,"schedulingGates":[@items]}`, `{"name":"a"}`},
	{`"spec":{"containers":null,"resourceClaims":[@items]}`, `{"name":"a"}`},
	{`"spec":{"containers":null,"topologySpreadConstraints":[@items]}`, `{"maxSkew":1,"topologyKey":"a","whenUnsatisfiable":"DoNotSchedule"}`},
	{`"spec":{"containers":null,"overhead":{@items}}`, `"@n":"1"`},
	{`"spec":{"containers":null,"nodeSelector":{@items}}`, `"@n":"1"`},
	{`"spec":{"containers":null,"securityContext":{"supplementalGroups":[@items]}}`, `2147483647`},
	{`"spec":{"containers":null,"securityContext":{"supplementalGroups":[@items]}}`, `1`},
	{`"spec":{"containers":null,"securityContext":{"sysctls":[@items]}}`, `{"name":"a.b","value":""}`},
	{`"spec":{"containers":null,"dnsConfig":{"options":[@items]}}`, `{"name":"a"}`},
	{`"spec":{"containers":null,"dnsConfig":{"searches":[@items]}}`, `"a"`},
	{`"spec":{"containers":null,"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[@items]}}}}`, `{}`},
	{`"spec":{"containers":null,"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[@items]}}}}`, `{"matchExpressions":[{"key":"a","operator":"Exists"}]}`},
	{`"spec":{"containers":null,"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[@items]}}}`, `{"weight":1,"preference":{}}`},
	{`"spec":{"containers":null,"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[@items]}}}`, `{"weight":1,"podAffinityTerm":{"topologyKey":"a"}}`},
	{`"spec":{"containers":null,"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[@items]}}}`, `{"labelSelector":{"matchLabels":{"a":"b"}},"topologyKey":"a"}`},
	{`"metadata":{"labels":{@items}}`, `"@n":"1"`},
	{`"metadata":{"finalizers":[@items]}`, `"a/b"`},
	{`"metadata":{"ownerReferences":[@items]}`, `{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}`},
	{`"metadata":{"managedFields":[@items]}`, `{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:a":{}}}`},
	{`"metadata":{"managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{@items}}]}`, `"k:{\"name\":\"A\"}@n":{}`},
	{`"metadata":{"managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{@items}}]}`, `"v:\"\u003c\u003e\u0026\"@n":{}`},
}

func storedPods(r *rand.Rand, random int) []Stored {
	var cases []Stored
	for number, skeleton := range skeletons {
		pod := `{"kind":"Pod","apiVersion":"v1",` + skeleton.members + `}`
		if !strings.Contains(pod, `"metadata":{`) {
			pod = strings.Replace(pod, `"spec"`, `"metadata":{"annotations":{"f":"@fill"}},"spec"`, 1)
		} else {
			pod = strings.Replace(pod, `"metadata":{`, `"metadata":{"annotations":{"f":"@fill"},`, 1)
		}
		// If all were at the limit, the tests would take half a minute in a debug build.
		size := etcdLimit
		if number%5 != 0 {
			size /= 16
		}
		cases = append(cases, near(r, size, Stored{Pod: pod, Item: skeleton.item}))
	}
	for range random / 3 {
		pod := corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
		fill(r, reflect.ValueOf(&pod).Elem(), 0)
		text, err := json.Marshal(pod)
		must(err)
		cases = append(cases, Stored{Pod: string(text)}.measured())
	}
	return cases
}

// near returns the case with as many items as bring the request within 300 bytes of a size.
func near(r *rand.Rand, size int, s Stored) Stored {
	few, many := s, s
	few.Times, many.Times = 64, 256
	few, many = few.measured(), many.measured()
	// size/64 is a margin, as greater lengths take more bytes.
	s.Times = (size - few.Stored - size/64) * (many.Times - few.Times) / (many.Stored - few.Stored)
	s.Times += few.Times
	wanted := size + r.IntN(601) - 300
	// One step may not be enough: the lengths of the filling and of the messages around it take bytes as well.
	s.Fill = size / 128
	for {
		s = s.measured()
		if s.Stored == wanted || s.Stored == wanted-1 {
			return s
		}
		s.Fill += wanted - s.Stored
		if s.Fill < 0 {
			s.Times -= max(s.Times/1000, 1)
			s.Fill = size / 128
		}
	}
}

// text returns the complete JSON of the Pod.
func (s Stored) text() string {
	items := make([]string, s.Times)
	for i := range items {
		items[i] = strings.ReplaceAll(s.Item, "@n", fmt.Sprintf("%06d", i))
	}
	text := strings.Replace(s.Pod, "@items", strings.Join(items, ","), 1)
	return strings.Replace(text, "@fill", strings.Repeat("x", s.Fill), 1)
}

// measured returns the case with the sizes of its requests.
func (s Stored) measured() Stored {
	var pod corev1.Pod
	must(json.Unmarshal([]byte(s.text()), &pod))
	// The API server sets these fields after webhooks.
	pod.Name, pod.Namespace = strings.Repeat("n", 253), strings.Repeat("n", 63)
	pod.UID = "00000000-0000-0000-0000-000000000000"
	pod.CreationTimestamp = metav1.NewTime(time.Unix(1<<32, 0))
	pod.Generation = 1
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}
	s.Stored = requestSize(&pod)
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
		Key: "tolerarch.io/multi-arch", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
	})
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "tolerarch.io/pools", "multi-arch")
	s.With = requestSize(&pod)
	return s
}

// requestSize returns the size of the request that creates the Pod. etcd compares this size with its limit.
func requestSize(pod *corev1.Pod) int {
	var object bytes.Buffer
	must(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(pod, &object))
	key := []byte("/registry/pods/" + pod.Namespace + "/" + pod.Name)
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: object.Bytes()}}}
	txn := &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, Key: key, TargetUnion: &pb.Compare_ModRevision{},
		}},
		Success: []*pb.RequestOp{put},
	}
	return proto.Size(&pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 1 << 63}, Txn: txn})
}

// fieldTexts are values of fields whose size is hard to tell from their JSON.
var fieldTexts = []string{
	"", "a", "some text", "tolerarch.io/pools", "<&>\"\\\n\u0001", "\u00fc\u2028\U0001f600", strings.Repeat("v", 127), strings.Repeat("v", 128),
	strings.Repeat("long & ", 40),
}

// fill sets a value at random. In a message, it sets only some fields.
func fill(r *rand.Rand, value reflect.Value, depth int) {
	switch value.Type() {
	case reflect.TypeFor[metav1.Time]():
		value.Set(reflect.ValueOf(metav1.NewTime(time.Unix(r.Int64N(1<<33), 0))))
		return
	case reflect.TypeFor[resource.Quantity]():
		value.Set(reflect.ValueOf(resource.MustParse(pick(r, "0", "1", "100m", "1536Mi", "-1", "123456789012345678"))))
		return
	case reflect.TypeFor[intstr.IntOrString]():
		value.Set(reflect.ValueOf(pick(r, intstr.FromInt32(80), intstr.FromInt32(-1), intstr.FromString("http"))))
		return
	case reflect.TypeFor[metav1.FieldsV1]():
		text := pick(r, `{}`, `{"f:a":{}}`, `{"f:a":{".":{},"k:{\"name\":\"A\"}":{"f:name":{}},"v:\"\\u003c\"":{}}}`)
		value.Set(reflect.ValueOf(metav1.FieldsV1{Raw: []byte(text)}))
		return
	case reflect.TypeFor[metav1.TypeMeta]():
		return
	}
	// Fewer fields are set at greater depth, so that the recursion ends.
	isSet := chance(r, max(12-2*depth, 2))
	switch value.Kind() {
	case reflect.String:
		value.SetString(pick(r, fieldTexts...))
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int32:
		value.SetInt(pick[int64](r, -1, 0, 1, 1<<14, 1<<31-1))
	case reflect.Int64:
		value.SetInt(pick[int64](r, -1, 0, 1, 1<<14, 1<<62))
	case reflect.Pointer:
		if isSet {
			value.Set(reflect.New(value.Type().Elem()))
			fill(r, value.Elem(), depth+1)
		}
	case reflect.Slice:
		if isSet {
			value.Set(reflect.MakeSlice(value.Type(), 1+r.IntN(3), 3))
			for i := range value.Len() {
				fill(r, value.Index(i), depth+1)
			}
		}
	case reflect.Map:
		if isSet {
			value.Set(reflect.MakeMap(value.Type()))
			for range 1 + r.IntN(3) {
				key, inner := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
				fill(r, key, depth+1)
				fill(r, inner, depth+1)
				value.SetMapIndex(key, inner)
			}
		}
	case reflect.Struct:
		for i := range value.NumField() {
			if chance(r, 60) {
				fill(r, value.Field(i), depth+1)
			}
		}
	}
}
