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

// oldestKubernetes is the oldest version on which the manifests must work. CEL that only later versions accept is a fault.
var oldestKubernetes = version.MajorMinor(1, 30)

var celOptions = cel.OptionalVariableDeclarations{HasAuthorizer: true}

// celEnvironment returns the CEL environment of oldestKubernetes.
func celEnvironment() *environment.EnvSet { return environment.MustBaseEnvSet(oldestKubernetes) }

// compileErrors compiles the match conditions with the API server's code, as API servers do when they store the object.
func compileErrors(w admissionregistration.MutatingWebhook) []error {
	compiler := cel.NewCompiler(celEnvironment())
	var errs []error
	for _, c := range w.MatchConditions {
		// Such an expression compiles, but fails for every Pod. With failurePolicy Ignore, the webhook would never be called.
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
