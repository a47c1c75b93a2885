package main

import (
	"fmt"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The oldest Kubernetes on which the manifests have to work: CEL that came later is a fault.
var oldestKubernetes = version.MajorMinor(1, 30)

var celOptions = cel.OptionalVariableDeclarations{HasAuthorizer: true}

func celEnvironment() *environment.EnvSet { return environment.MustBaseEnvSet(oldestKubernetes) }

// compileErrors compiles the conditions with the API server's own code, as it does when the object is stored.
func compileErrors(w admissionregistration.MutatingWebhook) []error {
	compiler := cel.NewCompiler(celEnvironment())
	var errs []error
	for _, c := range w.MatchConditions {
		// It compiles, and then fails for every Pod: with failurePolicy Ignore the webhook is never called.
		if strings.Contains(c.Expression, "namespaceObject") {
			errs = append(errs, fmt.Errorf("matchCondition %s: API servers do not set namespaceObject for webhooks", c.Name))
		}
		condition := matchconditions.MatchCondition(c)
		if result := compiler.CompileCELExpression(&condition, celOptions, environment.NewExpressions); result.Error != nil {
			errs = append(errs, fmt.Errorf("matchCondition %s: %w", c.Name, result.Error))
		}
	}
	return errs
}
