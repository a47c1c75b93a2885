package main

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// A Field is a member of a Pod or a DaemonSet: a map, or a message with the JSON of an empty one.
type Field struct {
	Field string `json:"field"`
	Empty int    `json:"empty,omitempty"`
	Map   bool   `json:"map,omitempty"`
}

func fields() []Field {
	found := map[Field]bool{}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			inner, isMap := field.Type, field.Type.Kind() == reflect.Map
			for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, inner.Kind()) {
				inner = inner.Elem()
			}
			// An API server stores a status only if a kubelet has set it.
			if name == "status" {
				continue
			}
			if isMap {
				found[Field{Field: name, Map: true}] = true
				continue
			}
			encoded, ok := reflect.New(inner).Interface().(interface{ Size() int })
			if !ok || slices.Contains(scalars, inner) {
				continue
			}
			if one := (Field{Field: name, Empty: encoded.Size()}); name != "" && !found[one] {
				found[one] = true
				walk(inner)
			} else if name == "" {
				walk(inner)
			}
		}
	}
	walk(reflect.TypeFor[corev1.Pod]())
	walk(reflect.TypeFor[appsv1.DaemonSet]())
	var all []Field
	for one := range found {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Field) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return all
}

// scalars are messages that are strings or numbers in JSON.
var scalars = []reflect.Type{
	reflect.TypeFor[metav1.Time](), reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.FieldsV1](),
}

// A Stored is the JSON of a Pod, with the bytes of the request by which the API server stores it in etcd: unchanged, and with
// tolerarch's additions. In the JSON, @items stands for a number of items, @n for the number of an item, and @fill for a number
// of letters.
type Stored struct {
	Pod    string `json:"pod"`
	Item   string `json:"item,omitempty"`
	Times  int    `json:"times,omitempty"`
	Fill   int    `json:"fill"`
	Stored int    `json:"stored"` // with fields that the API server sets after webhooks
	With   int    `json:"with"`
}

// etcdLimit is the maximum size of a request to etcd (--max-request-bytes).
const etcdLimit = 3 << 19

// skeletons are Pods with a list or a map, and one item for it.
var skeletons = []struct{ list, item string }{
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
		pod := `{"kind":"Pod","apiVersion":"v1",` + skeleton.list + `}`
		if !strings.Contains(pod, `"metadata":{`) {
			pod = strings.Replace(pod, `"spec"`, `"metadata":{"annotations":{"f":"@fill"}},"spec"`, 1)
		} else {
			pod = strings.Replace(pod, `"metadata":{`, `"metadata":{"annotations":{"f":"@fill"},`, 1)
		}
		// A debug build would need half a minute if all were at the limit.
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

// near returns the case with a number of items such that the request is within 300 bytes of a size.
func near(r *rand.Rand, size int, one Stored) Stored {
	few, many := one, one
	few.Times, many.Times = 64, 256
	few, many = few.measured(), many.measured()
	// size/64 leaves room for lengths that take more bytes.
	one.Times = (size - few.Stored - size/64) * (many.Times - few.Times) / (many.Stored - few.Stored)
	one.Times += few.Times
	wanted := size + r.IntN(601) - 300
	// The lengths of the filling and of the messages around it take bytes as well.
	for one.Fill = size / 128; ; {
		one = one.measured()
		if one.Stored == wanted || one.Stored == wanted-1 {
			return one
		}
		if one.Fill += wanted - one.Stored; one.Fill < 0 {
			one.Times, one.Fill = one.Times-max(one.Times/1000, 1), size/128
		}
	}
}

// text returns the JSON as it is in a review.
func (one Stored) text() string {
	items := make([]string, one.Times)
	for i := range items {
		items[i] = strings.ReplaceAll(one.Item, "@n", fmt.Sprintf("%06d", i))
	}
	text := strings.Replace(one.Pod, "@items", strings.Join(items, ","), 1)
	return strings.Replace(text, "@fill", strings.Repeat("x", one.Fill), 1)
}

// measured returns the case with the sizes of its requests.
func (one Stored) measured() Stored {
	var pod corev1.Pod
	must(json.Unmarshal([]byte(one.text()), &pod))
	// The API server sets these fields after webhooks.
	pod.Name, pod.Namespace = strings.Repeat("n", 253), strings.Repeat("n", 63)
	pod.UID = "00000000-0000-0000-0000-000000000000"
	pod.CreationTimestamp = metav1.NewTime(time.Unix(1<<32, 0))
	pod.Generation = 1
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}
	one.Stored = request(&pod)
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
		Key: "tolerarch.io/multi-arch", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
	})
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "tolerarch.io/pools", "multi-arch")
	one.With = request(&pod)
	return one
}

// request returns the size that etcd compares with its limit when an API server creates the Pod.
func request(pod *corev1.Pod) int {
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

var texts = []string{
	"", "a", "some text", "tolerarch.io/pools", "<&>\"\\\n\u0001", "\u00fc\u2028\U0001f600", strings.Repeat("v", 127), strings.Repeat("v", 128),
	strings.Repeat("long & ", 40),
}

// fill sets some fields of a message at random.
func fill(r *rand.Rand, value reflect.Value, depth int) {
	switch value.Type() {
	case reflect.TypeFor[metav1.Time]():
		value.Set(reflect.ValueOf(metav1.NewTime(time.Unix(r.Int64N(1<<33), 0))))
		return
	case reflect.TypeFor[resource.Quantity]():
		value.Set(reflect.ValueOf(resource.MustParse(one(r, "0", "1", "100m", "1536Mi", "-1", "123456789012345678"))))
		return
	case reflect.TypeFor[intstr.IntOrString]():
		value.Set(reflect.ValueOf(one(r, intstr.FromInt32(80), intstr.FromInt32(-1), intstr.FromString("http"))))
		return
	case reflect.TypeFor[metav1.FieldsV1]():
		text := one(r, `{}`, `{"f:a":{}}`, `{"f:a":{".":{},"k:{\"name\":\"A\"}":{"f:name":{}},"v:\"\\u003c\"":{}}}`)
		value.Set(reflect.ValueOf(metav1.FieldsV1{Raw: []byte(text)}))
		return
	case reflect.TypeFor[metav1.TypeMeta]():
		return
	}
	// Fewer fields at greater depth, so that the recursion ends.
	some := chance(r, max(12-2*depth, 2))
	switch value.Kind() {
	case reflect.String:
		value.SetString(one(r, texts...))
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int32:
		value.SetInt(one[int64](r, -1, 0, 1, 1<<14, 1<<31-1))
	case reflect.Int64:
		value.SetInt(one[int64](r, -1, 0, 1, 1<<14, 1<<62))
	case reflect.Pointer:
		if some {
			value.Set(reflect.New(value.Type().Elem()))
			fill(r, value.Elem(), depth+1)
		}
	case reflect.Slice:
		if some {
			value.Set(reflect.MakeSlice(value.Type(), 1+r.IntN(3), 3))
			for i := range value.Len() {
				fill(r, value.Index(i), depth+1)
			}
		}
	case reflect.Map:
		if some {
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
