package main

import (
	"context"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"tolerarch.io/e2e/manifests/chart"
)

// defaultManifests is the folder of the kustomization without components.
const defaultManifests = "../../manifests"

// kustomized renders a folder with kustomize. The cache of test results does not see the files that kustomize reads, so run these
// tests with -count=1.
func kustomized(t *testing.T, folder string) string {
	t.Helper()
	out, err := exec.Command("go", "tool", "kustomize", "build", folder).Output()
	if err != nil {
		t.Fatalf("kustomize build: %v", err)
	}
	return string(out)
}

// checked decodes and checks manifests.
func checked(t *testing.T, manifests string) []*item {
	t.Helper()
	items, err := decode(strings.NewReader(manifests))
	if err != nil {
		t.Fatal(err)
	}
	return check(items)
}

// passing renders a folder, reports the faults in its manifests, and returns the manifests.
func passing(t *testing.T, folder string) string {
	t.Helper()
	manifests := kustomized(t, folder)
	for _, fault := range faults(checked(t, manifests)) {
		t.Errorf("%s: %s", folder, fault)
	}
	return manifests
}

func TestManifestsPass(t *testing.T) {
	for _, folder := range []string{
		defaultManifests, "testdata/cert-manager", "testdata/tls-secret", "testdata/daemonsets", "testdata/podtemplates",
		"testdata/discovery", "testdata/warm",
	} {
		passing(t, folder)
	}
}

// With a certificate from elsewhere, the manifests grant no rights and mount no token.
func TestExternalCertificatesNeedNoRights(t *testing.T) {
	manifests := kustomized(t, "testdata/cert-manager")
	if strings.Contains(manifests, "kind: Role") || strings.Contains(manifests, "kind: ClusterRole") ||
		strings.Contains(manifests, "automountServiceAccountToken: true") {
		t.Error(manifests)
	}
}

func TestPassesWithPullSecrets(t *testing.T) {
	manifests := passing(t, "testdata/pull-secrets")
	for _, expected := range []string{"automountServiceAccountToken: true", "port: 6443"} {
		if !strings.Contains(manifests, expected) {
			t.Errorf("the manifests do not contain %q", expected)
		}
	}
}

func TestPassesWithNodeTaints(t *testing.T) {
	passing(t, "testdata/node-taints")
}

func TestPassesWithController(t *testing.T) {
	manifests := passing(t, "testdata/controller")
	for _, expected := range []string{"system:serviceaccount:tolerarch:tolerarch-controller'", "- controller\n"} {
		if !strings.Contains(manifests, expected) {
			t.Errorf("the manifests do not contain %q", expected)
		}
	}
}

// Webhook and controller must decide alike, so both have the same settings and rights for what they read.
func TestControllerReadsWhatTheWebhookReads(t *testing.T) {
	for _, c := range []struct{ overlay, variable, binding string }{
		{"controller-discovery", "TOLERARCH_DISCOVER__NODE_POOLS", "tolerarch-discovery"},
		{"controller-pull-secrets", "TOLERARCH_CREDENTIALS__PULL_SECRETS", "tolerarch-pull-secrets"},
	} {
		deployments, accounts := []string{}, []string{}
		addAccounts := func(binding string, subjects []rbac.Subject) {
			if binding != c.binding {
				return
			}
			for _, subject := range subjects {
				accounts = append(accounts, subject.Name)
			}
		}
		for _, it := range checked(t, kustomized(t, "testdata/"+c.overlay)) {
			for _, fault := range it.faults {
				t.Errorf("%s: %s: %s", c.overlay, it.id, fault)
			}
			switch o := it.object.(type) {
			case *apps.Deployment:
				if slices.Contains(o.Spec.Template.Spec.Containers[0].Env, core.EnvVar{Name: c.variable, Value: "true"}) {
					deployments = append(deployments, o.Name)
				}
			case *rbac.ClusterRoleBinding:
				addAccounts(o.Name, o.Subjects)
			case *rbac.RoleBinding:
				addAccounts(o.Name, o.Subjects)
			}
		}
		slices.Sort(deployments)
		both := []string{"tolerarch", "tolerarch-controller"}
		if !slices.Equal(deployments, both) || !slices.Equal(accounts, both) {
			t.Errorf("%s: Deployments with the variable: %v, accounts with the role: %v", c.overlay, deployments, accounts)
		}
	}
}

// The components daemonsets and podtemplates are written by hand, and must have the same content as the chart.
func TestHandwrittenComponentsMatchTheChart(t *testing.T) {
	for component, key := range map[string]string{"daemonsets": "daemonSets", "podtemplates": "podTemplates"} {
		fromChart, err := chart.Template("tolerarch", "tolerarch", "--set", "config."+key+"=true")
		if err != nil {
			t.Fatal(err)
		}
		webhooks := map[string]admissionregistration.MutatingWebhook{}
		for source, manifests := range map[string]string{"chart": fromChart, "component": kustomized(t, "testdata/"+component)} {
			for _, it := range checked(t, manifests) {
				c, ok := it.object.(*admissionregistration.MutatingWebhookConfiguration)
				if !ok {
					continue
				}
				for _, w := range c.Webhooks {
					if w.Name == component+".tolerarch.io" {
						webhooks[source] = w
					}
				}
			}
		}
		if len(webhooks) != 2 || !reflect.DeepEqual(webhooks["chart"], webhooks["component"]) {
			t.Errorf("%s: %+v", component, webhooks)
		}
	}
}

// Discovery has rights to read the resources that are switched on, and no others.
func TestDiscoveryRightsFollowTheConfig(t *testing.T) {
	for set, want := range map[string][]string{
		"config.mode=enforce":             nil,
		"config.discover.nodes=true":      {"nodes"},
		"config.discover.nodePools=true":  {"nodepools"},
		"config.discover.nodePools=false": nil,
		"config.discover.nodePools=true,config.discover.nodes=true,tls.mode=cert-manager": {"nodepools", "nodes"},
	} {
		rendering, err := chart.Template("arm", "platform", "--set", set)
		if err != nil {
			t.Fatal(err)
		}
		items := checkedInstallation(t, rendering, "platform")
		for _, fault := range faults(items) {
			t.Errorf("%s: %s", set, fault)
		}
		role, ok := find[*rbac.ClusterRole](items, "", "arm-tolerarch-discovery")
		if ok != (want != nil) {
			t.Errorf("%s: has the ClusterRole: %t", set, ok)
		}
		var resources []string
		if ok {
			for _, rule := range role.Rules {
				resources = append(resources, rule.Resources...)
			}
		}
		if !slices.Equal(resources, want) {
			t.Errorf("%s: %q, not %q", set, resources, want)
		}
	}
}

// The program may list Pods only if the warm start is on.
func TestWarmStartRightsFollowTheConfig(t *testing.T) {
	for _, isOn := range []bool{false, true} {
		rendering, err := chart.Template("arm", "platform", "--set", fmt.Sprintf("config.cache.warm.fromPods=%t", isOn))
		if err != nil {
			t.Fatal(err)
		}
		items := checkedInstallation(t, rendering, "platform")
		for _, fault := range faults(items) {
			t.Errorf("%t: %s", isOn, fault)
		}
		if _, ok := find[*rbac.ClusterRole](items, "", "arm-tolerarch-warm"); ok != isOn {
			t.Errorf("cache.warm.fromPods is %t, has the ClusterRole: %t", isOn, ok)
		}
	}
}

// The manifest of the rights to pull secrets only allows to get Secrets, in the namespace to which it is applied.
func TestRightsToPullSecretsAreMinimal(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(rbac.AddToScheme(scheme))
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	var roles, bindings int
	for _, document := range strings.Split(kustomized(t, defaultManifests+"/pull-secrets/rights"), "\n---\n") {
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch o := object.(type) {
		case *rbac.Role:
			roles++
			want := []rbac.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}
			if o.Namespace != "" || !reflect.DeepEqual(o.Rules, want) {
				t.Errorf("%+v", o)
			}
		case *rbac.RoleBinding:
			bindings++
			account, ok := find[*core.ServiceAccount](checked(t, kustomized(t, defaultManifests)), o.Subjects[0].Namespace, o.Subjects[0].Name)
			if o.Namespace != "" || o.RoleRef.Kind != "Role" || o.RoleRef.Name != "tolerarch-pull-secrets" || len(o.Subjects) != 1 || !ok {
				t.Errorf("%+v for %v", o, account)
			}
		default:
			t.Errorf("%T", o)
		}
	}
	if roles != 1 || bindings != 1 {
		t.Errorf("%d roles, %d bindings", roles, bindings)
	}
}

const webhookID, deploymentID = "MutatingWebhookConfiguration/zz-tolerarch", "Deployment/tolerarch"

// faultCases replace one text in the manifests, which makes a fault of the object with this ID.
var faultCases = map[string]struct{ old, new, id, fault string }{
	"unknown field": {
		"  timeoutSeconds: 5\n---", "  timeoutSecond: 5\n---", webhookID, `unknown field "webhooks[0].timeoutSecond"`},
	"field in the wrong case": {
		"sideEffects: None", "sideeffects: None", webhookID, `unknown field "webhooks[0].sideeffects"`},
	"unknown field of cert-manager": {
		"renewBefore: 720h", "renewedBefore: 720h", "Certificate/tolerarch-tls", `unknown field "spec.renewedBefore"`},
	"duplicate key": {
		"  failurePolicy: Ignore", "  failurePolicy: Ignore\n  failurePolicy: Ignore", webhookID, `"failurePolicy" already set`},
	"wrong type": {
		"replicas: 2", "replicas: two", deploymentID, "cannot unmarshal string"},
	"unexpected kind": {
		"kind: PodDisruptionBudget", "kind: PodDisruptionBadger", "PodDisruptionBadger/tolerarch", "is not expected here"},
	"rights": {
		"apiVersion: v1\nkind: Namespace", "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: r\n---\napiVersion: v1\nkind: Namespace",
		"Role/r", "gives rights"},
	"webhook of another service": {
		"      name: tolerarch\n      namespace: tolerarch\n      path", "      name: other\n      namespace: tolerarch\n      path",
		webhookID, "there is no Service tolerarch/other"},
	"webhook at another port": {
		"      port: 443", "      port: 8443", webhookID, "has no port 8443"},
	"webhook that fails closed": {
		"failurePolicy: Ignore", "failurePolicy: Fail", webhookID, "failurePolicy has to be Ignore"},
	"webhook for its own namespace": {
		"      - tolerarch\n      - kube-system\n", "      - kube-system\n", webhookID, "namespaceSelector has to be false"},
	"CEL that does not compile": {
		"  matchPolicy: Equivalent", "  matchConditions:\n  - name: custom\n    expression: object.spec.?os.?name.(\n  matchPolicy: Equivalent",
		webhookID, "matchCondition custom"},
	"CEL that API servers cannot evaluate": {
		"  matchPolicy: Equivalent", "  matchConditions:\n  - name: custom\n    expression: has(namespaceObject.metadata)\n  matchPolicy: Equivalent",
		webhookID, "namespaceObject"},
	"fixed user": {
		"runAsNonRoot: true", "runAsNonRoot: true\n        runAsUser: 65532", deploymentID, "runAsUser has to be"},
	"CA of another certificate": {
		"tolerarch/tolerarch-tls", "tolerarch/tls", webhookID, `there is no Certificate "tolerarch/tls"`},
	"missing SAN": {
		"  - tolerarch.tolerarch.svc\n", "", webhookID, "has no dnsName tolerarch.tolerarch.svc"},
	"Service that selects no Pods": {
		"  selector:\n    app.kubernetes.io/component: webhook", "  selector:\n    app.kubernetes.io/component: web",
		"Service/tolerarch", "selects the Pods of no Deployment"},
	"targetPort without a port": {
		"targetPort: webhook", "targetPort: https", "Service/tolerarch", "targetPort https of port 443"},
	"Secret that no Certificate makes": {
		"          secretName: tolerarch-tls", "          secretName: tolerarch", deploymentID, "no Certificate makes the Secret"},
	"missing config file": {
		"/etc/tolerarch/config/config.yaml", "/etc/tolerarch/config.yaml", deploymentID, "no ConfigMap provides the file"},
	"file mounted by subPath": {
		"mountPath: /etc/tolerarch/tls", "mountPath: /etc/tolerarch/tls\n          subPath: tls", deploymentID, "subPath"},
	"service links": {
		"enableServiceLinks: false", "enableServiceLinks: true", deploymentID, "enableServiceLinks has to be false"},
	"token that is not needed": {
		"      automountServiceAccountToken: false\n", "      automountServiceAccountToken: true\n", deploymentID, "if and only if it uses the API"},
	"soft spread over zones": {
		"topologyKey: kubernetes.io/hostname", "topologyKey: topology.kubernetes.io/zone", deploymentID,
		"no constraint applies to nodes without the label topology.kubernetes.io/zone"},
	"spread constraint for other Pods": {
		"      - labelSelector:\n          matchLabels:\n            app.kubernetes.io/component: webhook", "      - labelSelector:\n          matchLabels:\n            app.kubernetes.io/component: web", deploymentID,
		"does not select the Pods"},
	"short timeout of the readiness probe": {
		"periodSeconds: 2\n          timeoutSeconds: 5", "periodSeconds: 2\n          timeoutSeconds: 1", deploymentID, "readiness probe needs timeoutSeconds"},
	"writable root": {
		"readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", deploymentID, "readOnlyRootFilesystem"},
	"closed port": {
		"    - port: 8443\n", "    - port: 9443\n", "NetworkPolicy/tolerarch", "does not allow the port webhook (8443)"},
	"annotation of cert-manager with managed certificates": {
		"    admissions.enforcer/disabled: \"true\"\n  labels", "    cert-manager.io/inject-ca-from: a/b\n  labels", webhookID, "tls.mode is managed"},
	"right to another Secret": {
		"  resourceNames:\n  - tolerarch-certificates\n  - tolerarch-serving\n", "", "Role/tolerarch-certificates", "gives other rights"},
	"webhook with a right to its certificate": {
		"  name: tolerarch-certificates\n  namespace: tolerarch\nrules:", "  name: tolerarch-serving\n  namespace: tolerarch\nrules:", "Role/tolerarch-serving", "gives rights, and tolerarch needs none"},
	"optional Secret of the serving certificate": {
		"          secretName: tolerarch-serving\n", "          optional: true\n          secretName: tolerarch-serving\n", deploymentID, "has to wait for tls.crt and tls.key"},
	"serving certificate that is not mounted": {
		"          secretName: tolerarch-serving\n", "          secretName: tolerarch-other\n", deploymentID, "does not mount the Secret tolerarch-serving"},
	"token without egress to the Kubernetes API": {
		"      automountServiceAccountToken: false\n", "      automountServiceAccountToken: true\n", "NetworkPolicy/tolerarch", "egress has to allow the Kubernetes API"},
	"webhook that has the issuer's rights": {
		"  name: tolerarch-certificates\nsubjects:\n- kind: ServiceAccount\n  name: tolerarch-certificates\n", "  name: tolerarch-certificates\nsubjects:\n- kind: ServiceAccount\n  name: tolerarch\n", "RoleBinding/tolerarch-certificates", "to the account tolerarch"},
	"right to all webhooks": {
		"  resourceNames:\n  - zz-tolerarch\n", "", "ClusterRole/tolerarch-certificates", "gives rights in the whole cluster"},
	"token that is missing": {
		"      automountServiceAccountToken: true\n", "", "Deployment/tolerarch-certificates", "if and only if it uses the API"},
	"certificate without its issuer": {
		"    name: tolerarch-selfsigned\n  privateKey", "    name: selfsigned\n  privateKey", "Certificate/tolerarch-ca", "there is no Issuer selfsigned"},
}

func TestFaultsAreReported(t *testing.T) {
	// Each case uses the manifests that contain its text. Those with cert-manager have its annotations, and the others have the rights
	// for managed certificates.
	withCertManager, managed := kustomized(t, "testdata/cert-manager")+"---\n", kustomized(t, defaultManifests)+"---\n"
	for name, c := range faultCases {
		t.Run(name, func(t *testing.T) {
			manifests := withCertManager
			if !strings.Contains(manifests, c.old) {
				manifests = managed
			}
			broken := strings.Replace(manifests, c.old, c.new, 1)
			if broken == manifests {
				t.Fatalf("the manifests do not contain %q any more", c.old)
			}
			got := faults(checked(t, broken))
			isExpected := func(fault string) bool {
				return strings.HasPrefix(fault, c.id+": ") && strings.Contains(fault, c.fault)
			}
			if !slices.ContainsFunc(got, isExpected) {
				t.Errorf("no fault of %s with %q in %q", c.id, c.fault, got)
			}
		})
	}
}

func TestMissingKindsAreReported(t *testing.T) {
	items := checked(t, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: tolerarch\n")
	var out strings.Builder
	if failed := report(&out, items); failed != 5 {
		t.Errorf("%d failed, not 5:\n%s", failed, out.String())
	}
	if !strings.HasSuffix(out.String(), "\n1 passed, 5 failed\n") {
		t.Errorf("last line: %s", out.String())
	}
}

// The API server's code evaluates the conditions of webhook.skipInApiServer, on Pods as they are when they are created.
func TestMatchConditions(t *testing.T) {
	yes := true
	ownedBy := func(kind string, controller *bool) metav1.ObjectMeta {
		return metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Controller: controller}}}
	}
	annotated := func(key, value string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Annotations: map[string]string{key: value}}
	}
	windows := core.PodSpec{OS: &core.PodOS{Name: core.Windows}}
	linux := core.PodSpec{OS: &core.PodOS{Name: core.Linux}}

	rendering, err := chart.TemplateFeature("webhook", "tolerarch", "tolerarch")
	if err != nil {
		t.Fatal(err)
	}
	var webhook admissionregistration.MutatingWebhook
	for _, c := range all[*admissionregistration.MutatingWebhookConfiguration](checked(t, rendering)) {
		webhook = c.Webhooks[0]
	}
	var conditions []cel.ExpressionAccessor
	for _, c := range webhook.MatchConditions {
		if c.Name == "not-of-the-backup-tool" { // the first condition of the feature's values, after those of the chart
			break
		}
		condition := matchconditions.MatchCondition(c)
		conditions = append(conditions, &condition)
	}
	matcher := matchconditions.NewMatcher(
		cel.NewConditionCompiler(celEnvironment()).CompileCondition(conditions, celOptions, environment.StoredExpressions),
		webhook.FailurePolicy, "webhook", "admit", webhook.Name)

	for name, c := range map[string]struct {
		pod       core.Pod
		skippedBy string // name of the condition; empty if the webhook is called
	}{
		"plain":                        {core.Pod{}, ""},
		"of a ReplicaSet":              {core.Pod{ObjectMeta: ownedBy("ReplicaSet", &yes)}, ""},
		"owned, but not controlled":    {core.Pod{ObjectMeta: ownedBy("DaemonSet", nil)}, ""},
		"of a DaemonSet":               {core.Pod{ObjectMeta: ownedBy("DaemonSet", &yes)}, "not-of-a-daemonset"},
		"assigned":                     {core.Pod{Spec: core.PodSpec{NodeName: "n"}}, "not-assigned-to-a-node"},
		"mirror":                       {core.Pod{ObjectMeta: annotated("kubernetes.io/config.mirror", "x")}, "not-a-mirror-pod"},
		"linux":                        {core.Pod{Spec: linux}, ""},
		"windows":                      {core.Pod{Spec: windows}, "not-windows"},
		"opted out":                    {core.Pod{ObjectMeta: annotated("tolerarch.io/mode", "off")}, "not-opted-out"},
		"annotated with another value": {core.Pod{ObjectMeta: annotated("tolerarch.io/mode", "on")}, ""},
		"annotated with something":     {core.Pod{ObjectMeta: annotated("a", "b")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			kind := core.SchemeGroupVersion.WithKind("Pod")
			attributes := admission.NewAttributesRecord(&c.pod, nil, kind, "default", "pod",
				core.SchemeGroupVersion.WithResource("pods"), "", admission.Create, &metav1.CreateOptions{}, false, nil)
			result := matcher.Match(context.Background(),
				&admission.VersionedAttributes{Attributes: attributes, VersionedObject: admission.NewLazyObject(&c.pod), VersionedKind: kind}, nil, nil)
			if result.Error != nil || result.Matches != (c.skippedBy == "") || result.FailedConditionName != c.skippedBy {
				t.Errorf("matches %t, skipped by %q, error %v; want skipped by %q",
					result.Matches, result.FailedConditionName, result.Error, c.skippedBy)
			}
		})
	}
}
