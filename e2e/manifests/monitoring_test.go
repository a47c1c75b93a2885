package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"tolerarch.io/e2e/manifests/chart"
)

const rulesFile = chart.Directory + "/rules/tolerarch.yaml"

// promtool runs Prometheus' promtool, which Debian's package prometheus contains.
func promtool(t *testing.T, arguments ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil && os.Getenv("CI") == "" {
		t.Skip("promtool is not on the PATH: apt-get install prometheus")
	}
	if out, err := exec.Command("promtool", arguments...).CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", arguments, err, out)
	}
}

// readFile returns a file of the repository.
func readFile(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{chart.Repository}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// decodeFile decodes a YAML file of the repository.
func decodeFile[T any](t *testing.T, path ...string) T {
	t.Helper()
	var value T
	if err := yaml.Unmarshal([]byte(readFile(t, path...)), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// alerts returns the alert rules of the chart.
func alerts(t *testing.T) []monitoring.Rule {
	t.Helper()
	rules := decodeFile[monitoring.PrometheusRuleSpec](t, rulesFile).Groups[0].Rules
	if len(rules) == 0 {
		t.Fatal("no rules")
	}
	return rules
}

func TestAlertRulesPassPromtool(t *testing.T) {
	promtool(t, "check", "rules", filepath.Join(chart.Repository, rulesFile))
	promtool(t, "test", "rules", "testdata/alerts.yaml")
}

// Each alert fires and clears in a test of promtool, and has a runbook.
func TestAlertsAreTestedAndExplained(t *testing.T) {
	type alertTest struct {
		AlertName string `json:"alertname"`
		Expected  []any  `json:"exp_alerts"`
	}
	fires, clears := map[string]bool{}, map[string]bool{}
	tests := decodeFile[struct {
		Tests []struct {
			Alerts []alertTest `json:"alert_rule_test"`
		}
	}](t, "e2e/manifests/testdata/alerts.yaml")
	for _, test := range tests.Tests {
		fired := false
		for _, alert := range test.Alerts {
			if len(alert.Expected) > 0 {
				fired, fires[alert.AlertName] = true, true
			} else if fired {
				clears[alert.AlertName] = true
			}
		}
	}
	var runbooks []string
	for _, rule := range alerts(t) {
		if !fires[rule.Alert] || !clears[rule.Alert] {
			t.Errorf("%s: fires %t, clears %t", rule.Alert, fires[rule.Alert], clears[rule.Alert])
		}
		page := "docs/runbooks/" + rule.Alert + ".md"
		if !strings.HasSuffix(rule.Annotations["runbook_url"], "/blob/main/"+page) {
			t.Errorf("%s: runbook_url %s", rule.Alert, rule.Annotations["runbook_url"])
		}
		if !strings.HasPrefix(readFile(t, page), "# "+rule.Alert+"\n") {
			t.Errorf("%s has another title", page)
		}
		runbooks = append(runbooks, filepath.Join(chart.Repository, page))
	}
	files, _ := filepath.Glob(filepath.Join(chart.Repository, "docs/runbooks/*.md"))
	slices.Sort(runbooks)
	if !slices.Equal(files, runbooks) {
		t.Errorf("docs/runbooks has %q, and the alerts link %q", files, runbooks)
	}
}

// query is an expression in PromQL, with the title of its panel or the name of its alert.
type query struct{ source, expression string }

// queries returns the queries of the dashboards.
func queries(t *testing.T) []query {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(chart.Repository, chart.Directory, "dashboards/*.json"))
	var all []query
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var dashboard struct {
			Panels []struct {
				ID      int
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &dashboard); err != nil {
			t.Fatal(file, err)
		}
		ids := map[int]bool{}
		for _, panel := range dashboard.Panels {
			if ids[panel.ID] {
				t.Errorf("%s: two panels have the id %d", file, panel.ID)
			}
			ids[panel.ID] = true
			for _, target := range panel.Targets {
				all = append(all, query{panel.Title, target.Expr})
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("no queries")
	}
	return all
}

// Every query of the dashboards parses, and finds series among those of a cluster in which Prometheus scrapes everything.
func TestDashboardQueriesFindSeries(t *testing.T) {
	var samples []any
	for _, q := range queries(t) {
		// Grafana fills in these variables.
		expression := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$job", ".*").Replace(q.expression)
		if strings.Contains(expression, "$") {
			t.Errorf("%s: unknown variable: %s", q.source, q.expression)
		}
		samples = append(samples, map[string]any{
			"expr":        fmt.Sprintf("count(%s) > bool 0", expression),
			"eval_time":   "100m",
			"exp_samples": []any{map[string]any{"labels": "{}", "value": 1}},
		})
	}
	test, err := yaml.Marshal(map[string]any{
		"evaluation_interval": "1m",
		"tests": []any{map[string]any{
			"interval":         "1m",
			"input_series":     decodeFile[[]any](t, "e2e/manifests/testdata/series.yaml"),
			"promql_expr_test": samples,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboards.yaml")
	if err := os.WriteFile(file, test, 0o644); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

// Rules and dashboards name only existing metrics: those of API servers, those of every process, and tolerarch's metrics in
// docs/metrics.md. Another test compares this page with the program.
func TestMetricsExist(t *testing.T) {
	metrics := map[string]bool{
		"apiserver_admission_webhook_admission_duration_seconds": true,
		"apiserver_admission_webhook_fail_open_count":            true,
		"apiserver_admission_webhook_request_total":              true,
		"apiserver_request_total":                                true,
		"process_cpu_seconds_total":                              true,
		"process_resident_memory_bytes":                          true,
	}
	for _, name := range regexp.MustCompile("`(tolerarch_[a-z_]+)`").FindAllStringSubmatch(readFile(t, "docs/metrics.md"), -1) {
		metrics[name[1]] = true
	}
	all := queries(t)
	for _, rule := range alerts(t) {
		all = append(all, query{rule.Alert, rule.Expr.String()})
	}
	for _, q := range all {
		for _, name := range regexp.MustCompile(`\b(tolerarch|apiserver|process)_[a-z_]+\b`).FindAllString(q.expression, -1) {
			if !metrics[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s: there is no metric %s", q.source, name)
			}
		}
	}
	for _, input := range decodeFile[[]struct{ Series string }](t, "e2e/manifests/testdata/series.yaml") {
		name, _, _ := strings.Cut(input.Series, "{")
		if !metrics[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("there is no metric %s", name)
		}
	}
}
