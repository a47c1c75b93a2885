package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"
)

// Priorities are the text in the cluster-autoscaler's ConfigMap of priorities and names of node groups, with the groups that its expander
// chooses.
type Priorities struct {
	Text    string   `json:"text"`
	Groups  []string `json:"groups"`
	Refused bool     `json:"is_refused,omitempty"`
	// Whether two keys mean the same priority, but are different keys for go-yaml. Which of them counts is random.
	Random bool `json:"is_random,omitempty"`
	// For each group, the highest priority of a pattern that matches. Null if none matches, or if it is below -1, with which the expander
	// starts.
	Priorities []*int   `json:"priorities,omitempty"`
	Best       []string `json:"best,omitempty"`
}

// prioritized returns a case with the answer of sigs.k8s.io/yaml, Go's regexp and the rules of the priority expander.
func prioritized(text string, groups []string) Priorities {
	result := Priorities{Text: text, Groups: groups}
	refused := Priorities{Text: text, Groups: groups, Refused: true}
	if hasEqualKeys(text) {
		return Priorities{Text: text, Groups: groups, Random: true}
	}
	lists := map[int][]string{}
	if text == "" || yaml.Unmarshal([]byte(text), &lists) != nil {
		return refused
	}
	patterns := map[int][]*regexp.Regexp{}
	for priority, list := range lists {
		for _, pattern := range list {
			compiled, err := regexp.Compile(pattern)
			if err != nil {
				return refused
			}
			patterns[priority] = append(patterns[priority], compiled)
		}
	}
	highest := -1
	for _, group := range groups {
		var groupPriority *int
		for priority, list := range patterns {
			for _, pattern := range list {
				if pattern.FindStringIndex(group) != nil && priority >= -1 && (groupPriority == nil || priority > *groupPriority) {
					groupPriority = &priority
				}
			}
		}
		result.Priorities = append(result.Priorities, groupPriority)
		switch {
		case groupPriority == nil || *groupPriority < highest:
		case *groupPriority > highest:
			highest, result.Best = *groupPriority, []string{group}
		default:
			result.Best = append(result.Best, group)
		}
	}
	if len(result.Best) == 0 {
		result.Best = groups
	}
	return result
}

// hasEqualKeys returns whether different keys of go-yaml have the same text, such as 10 and "10".
func hasEqualKeys(text string) bool {
	var members map[any]any
	if goyaml.Unmarshal([]byte(text), &members) != nil {
		return false
	}
	seen := map[string]bool{}
	for key := range members {
		keyText := fmt.Sprint(key)
		if float, ok := key.(float64); ok {
			keyText = strconv.FormatFloat(float, 'g', -1, 32)
		}
		if seen[keyText] {
			return true
		}
		seen[keyText] = true
	}
	return false
}

// groupNames are names of node groups in the forms of cloud providers, and unusual ones.
var groupNames = []string{
	"plain", "multi", "eks-arm-multi-3ac5b2f0-1d2e", "eks-amd-plain-9bc5b2f0-7d2e", "my-cluster-multi-arch-ng-1-NodeGroup-1ABCDEF", "aks-arm64pool-12345678-vmss", "aks-nodepool1-12345678-vmss",
	"https://www.googleapis.com/compute/v1/projects/my-project/zones/europe-west1-b/instanceGroups/gke-c-multi-1a2b3c4d-grp", "https://www.googleapis.com/compute/v1/projects/p/zones/europe-west1-b/instanceGroups/gke-c-default-pool-1a2b3c4d-grp",
	"MachineDeployment/default/multi-md-0", "MachineDeployment/openshift-machine-api/worker-eu-west-1a", "MachineSet/kube-system/arm64.set", "MultI", "ARM64", "a_b", "-", "x{1}", "a b", "t4g.large|x", "gr\u00fcn-\u03b1", "\u212a8s", "a\nb", "pool[0]", "",
}

// patternForms are patterns as users write them, and patterns on which libraries differ.
var patternForms = []string{
	".*", ".*multi.*", "^eks-arm-.*", "aks-.*-vmss$", "^multi$", "multi", "plain", "MachineDeployment/default/.*", "^https://.*/gke-c-multi-[0-9a-f]+-grp$", ".*-arm64?.*", "(arm|multi)", "gke-.*-(multi|default-pool)-.*",
	"(?i)arm", "(?i:MULTI)", "(?i)k8s", "(?i)[a-c]+-", "(?i)[^a-z]", "(?i)\\W", "(?i)[[:lower:]]", "(?-i)arm", "(?i)a(?-i)R", "(?im-s)^a.b", "(?s)a.b", "(?m)^b$", "(?sm)^b$", "a.b", "a$", "^$", "(?m)$", "(?U)a+", "(?i)", "(?i)gr\u00fcn", "gr\u00fcn", "\u03b1$", "(?)", "(?:)", "()", "(|a)", "|", "a|", "(?i)\u017f",
	"\\d", "\\D$", "\\w+-\\w+", "\\W", "\\s", "\\S\\s\\S", "[\\d-]$", "[^\\w/.:-]", "[\\D]", "[^\\D]", "\\bmulti\\b", "\\Barm\\B", "\\b", "\\B", "\\Aeks", "vmss\\z", "\\Z", "\\C", "\\Qx{1}\\E", "\\Qt4g.large|x", "\\Q\\E", "a\\Q\\E*", "\\Qab\\E+", "[\\Qa\\E]", "\\E",
	"\\pL", "\\p{Greek}", "\\p{L}+", "\\P{L}", "[\\pN]", "\\p{Nonsense}", "\\p", "\\p{", "\\p{^L}", "[[:alpha:]]-", "[[:^alnum:]]", "[[:word:]]+", "[[:foo:]]", "[[:alpha:]", "[:alpha:]", "[[:alpha]", "[[:", "[[:xdigit:][:punct:]]",
	"[a-z]", "[z-a]", "[]]", "[^]]", "[]a]", "[a", "[", "]", "[a-]", "[-a]", "[a-\\d]", "[\\d-z]", "[a&&b]", "[a--b]", "[a~~b]", "[[a]b]", "[a[b]c]", "[^\\x00-\\x{10FFFF}]", "[\\x{D800}-\\x{E000}]", "\\x{D800}", "[^a]", "[a-zA-Z0-9_.-]+", "[.]", "[\\]\\[]", "[\\b]", "[\\-]", "[#]", "[ ]", "[\u03b1-\u03c9]", "(?i)[\u03b1-\u03c9]", "[+--]", "[a-c-e]",
	"a{2}", "a{0}", "l{0,1}", "l{1,}", "[0-9a-f]{8}", "a{,2}", "a{1,0}", "a{ 1 }", "a{01}", "x{1}", "x\\{1\\}", "{", "}", "{1}", "a{", "a{1", "a{1,", "a{1,2", "a{1000}", "a{1001}", "a{0,1001}", "a{99999999999999999999}", "a{99999999999999999999", "a{1,99999999999}", "(a{500}){2}", "(a{500}){3}", "((a{10}){10}){10}", "((a{10}){10}){11}", "(a{1000}){0}", "((a{1000}){0}){1000}", "(a{600}|b{2}){2}", "(a{0,}){1000}", "(a{2,}){600}", "(a{1000}){1}", "(a{1000})*", "(a{501}){0,2}", "(a{501}){0,1}", "((a{501})?){2}",
	"*", "+", "?", "*multi*", "a**", "a*+", "a++", "a+?", "a*?b", "a??", "a???", "a+*", "a{2}{2}", "a{2}?", "a{2}*", "a{2}??", "(*a)", "(?:*)", "a|*", "^*", "$+", "^^", "$$", "\\b+", "a(?i)*", "a*(?i)*", "(a*)*", "(a+)+$", "(a|aa)+$", "(?i)*",
	"(", ")", "(a", "a)", "(?", "(?a", "(?P<n>a)", "(?P<n", "(?P<n>a", "(?<n>a)", "(?<1>a)", "(?<n>a)(?<n>b)", "(?<>a)", "(?<n-m>a)", "(?<\u00fc>a)", "(?P=n)", "(?'n'a)", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(?>a)", "(?#c)", "(?x) a", "(?u)a", "(?R)a", "(?i-)a", "(?-)a", "(?i-i)A", "(?--i)a", "(?-i:a)", "(?ii)a", "(?is-mU:A.)", "(?i-s", "(a)\\1", "\\1", "\\7", "\\8", "\\9", "\\0", "\\101", "\\060", "\\1234", "\\08", "\\777", "[\\101]", "[\\1]",
	"\\x61", "\\x6", "\\x", "\\x{61}", "\\x{}", "\\x{110000}", "\\x{6 1}", "\\x{000000000061}", "\\u0061", "\\U00000061", "\\u{61}", "\\a", "\\f", "\\n", "\\r", "\\t", "\\v", "\\e", "\\c", "\\h", "\\K", "\\G", "\\R", "\\X", "\\_", "\\-", "\\/", "\\.", "\\ ", "\\<", "\\>", "\\<a\\>", "\\`", "\\\"", "\\\u00fc", "\\", "a\\", "\\b{start}", "\\%", "\\@", "\\~", "a/b", "a&&b", "#a", "a#b", "a #b", " a ", "~", "null", "true", "yes", "1", "1.0", "1.50", "010", "0x1f", "1e3", "1e6", "1000000", "123456.0", "1234567.0", "16777217.0", "0.0001", "0.00001", "1e400", "1e30", "-1e30", "1_000", "18446744073709551615", ".inf", "-.inf", ".nan", "-", "2001-01-01", "<<", "=", "- a", "a: b", "a:b", "@a", "`a", "%a", "!a", "&a", "*a", "[a]", "{a}", "'", "\"", "''", "",
}

// priorityTexts are whole texts on which parsers differ.
var priorityTexts = []string{
	"", " ", "\n", "# nothing\n", "---\n", "~\n", "null", "{}", "[]", "- a\n", "a\n", "1\n", "a: [b]\n", "10\n", "10:\n", "10: []\n", "10: ~\n", "10: multi\n", "10: [multi]", "10: {multi: 1}\n", "10: 5\n", "10: true\n", "10: ''\n", "10:\n- multi\n", "10:\n  - multi\n  -\n", "10:\n  - ~\n",
	"10:\n  - multi\n5:\n  - .*\n", "100:\n  - .*multi.*\n10:\n  - .*\n", "10:\n  - .*\n-1:\n  - .*multi.*\n", "-1:\n  - .*multi.*\n", "-2:\n  - .*multi.*\n-3:\n  - .*\n", "-1:\n  - plain\n-2:\n  - .*\n", "0:\n  - plain\n",
	"10: [multi]\n10: [plain]\n", "10: [multi]\n'10': [plain]\n", "'10': [multi]\n'10': [plain]\n", "10: [multi]\n0xa: [plain]\n", "10: [multi]\n10.0: [plain]\n", "10.0: [multi]\n10.0: [plain]\n", "1e1: [multi]\n10.: [plain]\n", "10.0: [multi]\n10.000000001: [plain]\n", "+10: [multi]\n10: [plain]\n", "'+10': [multi]\n10: [plain]\n", "'010': [multi]\n8: [plain]\n10: [eks]\n", "010: [multi]\n8: [plain]\n", "'+10': [multi]\n'010': [plain]\n", "0x10: [multi]\n16: [plain]\n", "1_0: [multi]\n9: [plain]\n", "'1_0': [multi]\n", "0b11: [multi]\n", "0o17: [multi]\n", "1.0: [multi]\n0: [plain]\n", "1.5: [multi]\n", "1e3: [multi]\n", "1e6: [multi]\n", "1000000: [multi]\n", "123456.0: [multi]\n", "1234567.0: [multi]\n", "-0: [multi]\n", "-0.0: [multi]\n", "'-0': [multi]\n", "+5: [multi]\n", "'+5': [multi]\n", "' 5': [multi]\n", "'5 ': [multi]\n", "'': [multi]\n", "'-': [multi]\n", "'+': [multi]\n", "+: [multi]\n",
	"9223372036854775807: [multi]\n", "9223372036854775808: [multi]\n", "-9223372036854775808: [multi]\n", "-9223372036854775809: [multi]\n", "18446744073709551616: [multi]\n", "yes: [multi]\n", "true: [multi]\n", "null: [multi]\n", "~: [multi]\n", ": [multi]\n", ".inf: [multi]\n", "-.inf: [multi]\n", ".nan: [multi]\n", "1:30: [multi]\n", "2001-01-01: [multi]\n", "? 10\n: [multi]\n", "? [10]\n: [multi]\n", "!!str 10: [multi]\n", "!!int '10': [multi]\n", "!!float 10: [multi]\n",
	"10: [multi, [plain]]\n", "10: [multi, {a: b}]\n", "10: [1, 1.0, true, ~, off]\n", "10: !!seq [multi]\n", "10: [!!str 1]\n", "10: [!!binary bXVsdGk=]\n", "10: [a?b]\n", "10: [multi?]\n", "10: [\"multi?\"]\n", "10: [.*multi.*]\n", "10: [[a-z]]\n", "10: [^eks-[a-z]+]\n", "10: [a{2}]\n", "10: [a, b:]\n", "10: [a:b]\n", "{10: [multi], 5: [plain]}\n", "{\"10\": [\"multi\"], \"5\": [\".*\"]}", "{10:[multi]}\n", "{10: [multi]\n", "[10: multi]\n", "10: [multi,]\n", "10: [,multi]\n", "10: [multi,,plain]\n",
	"10:\n  - \"eks-\\d+\"\n", "10:\n  - \"eks-\\\\d+\"\n", "10:\n  - 'eks-\\w+'\n", "10:\n  - \"a\\/b\"\n", "10:\n  - \"a\\\\/b\"\n", "10:\n  - \"a\\'b\"\n", "10:\n  - 'multi'' '\n", "10:\n  - |\n    multi\n", "10:\n  - |-\n    multi\n", "10:\n  - >-\n    mul\n    ti\n", "10:\n  - multi # comment\n", "10:\n  - multi#comment\n", "10: # a\n  # b\n  - multi\n\n  - plain\n", "10:\n- multi\n5:\n- .*\n", "10:\n    - multi\n    - plain\n  5:\n    - .*\n", "10:\n\t- multi\n", "10:\n  -multi\n", "10:\n  - *multi*\n", "10:\n  - *\n", "10:\n  - .*\n  - *a\n", "a: &a [multi]\n10: *a\n", "10: &a [multi]\n5: *a\n", "10: &a [multi]\n20: [*a]\n", "10:\n  - &a multi\n5:\n  - *a\n", "<<: {10: [multi]}\n5: [plain]\n", "&m 10: [multi]\n", "10: [multi]\n<<: &x {10: [plain], 5: [eks]}\n", "<<: [multi]\n", "'<<': [multi]\n",
	"10: [multi]\n---\n5: [plain]\n", "---\n10: [multi]\n...\n", "10: [multi]\n...\nrubbish: [\n", "10: [multi]\n---\n[\n", " 10:\n  - multi\n5:\n  - .*\n", " 10:\n  - multi\n@\n", "10: [multi]\n...\n@\n", "%YAML 1.1\n---\n10: [multi]\n", "\ufeff10: [multi]\n", "10: [multi]\r\n5: [plain]\r\n", "  10:\n    - multi\n", "priorities: |\n  10:\n    - multi\n", "priorities:\n  10:\n    - multi\n", "|\n  10:\n    - multi\n", "10 : [multi]\n", "10:[multi]\n", "10:\n  multi\n", "10:\n  - multi\n  plain\n", "10: - multi\n", "10:\n  - - multi\n", "10:\n  - multi: plain\n", "10:\n  - https://.*:443/multi\n", "10:\n  - a\x00b\n", "10:\n  - \u0007\n", "10:\n  - gr\u00fcn\n",
}

func priorityCases(r *rand.Rand, random int) []Priorities {
	var cases []Priorities
	for number, text := range priorityTexts {
		cases = append(cases, prioritized(text, []string{"plain", "multi", groupNames[number%len(groupNames)]}))
	}
	// Each pattern alone in a text, with a group that it matches if there is one.
	for number, pattern := range patternForms {
		groups := []string{groupNames[number%len(groupNames)], groupNames[(number*7+3)%len(groupNames)]}
		if compiled, err := regexp.Compile(pattern); err == nil {
			for i := range groupNames {
				if name := groupNames[(i+number)%len(groupNames)]; compiled.MatchString(name) {
					groups = append(groups, name)
					break
				}
			}
		}
		cases = append(cases, prioritized("1: ["+jsonString(pattern)+"]", groups))
	}
	for range random {
		cases = append(cases, randomPriorities(r))
	}
	return cases
}

func randomPriorities(r *rand.Rand) Priorities {
	var text strings.Builder
	for range 1 + r.IntN(3) {
		priority := pick(r, fmt.Sprint(r.IntN(200)), fmt.Sprint(r.IntN(200)), fmt.Sprint(r.IntN(6)-3), "0x10", "'10'", "10", "1_0", "010", "+5", "1.0", "1e2")
		if chance(r, 15) {
			fmt.Fprintf(&text, "%s: [%s, %s]\n", priority, patternText(r), patternText(r))
			continue
		}
		fmt.Fprintf(&text, "%s:\n", priority)
		for range r.IntN(4) {
			fmt.Fprintf(&text, "%s %s%s\n", pick(r, "  -", "-", "  -", "    -"), patternText(r), pick(r, "", "", "", " # c", " "))
		}
	}
	result := text.String()
	if chance(r, 15) {
		result = damaged(r, result)
	}
	var groups []string
	for range 1 + r.IntN(4) {
		groups = append(groups, pick(r, groupNames...))
	}
	return prioritized(result, groups)
}

// patternText returns a random pattern as YAML, with or without quotes.
func patternText(r *rand.Rand) string {
	pattern := pick(r, patternForms...)
	if chance(r, 60) {
		pattern = pick(r, patternForms[:12]...)
	}
	switch r.IntN(8) {
	case 0:
		pattern = pick(r, "^", "(", "(?i)", "[^", "\\Q", ".*", "(?:") + pattern + pick(r, "", ")", "]", "\\E", ".*", "$", "{2}")
	case 1:
		pattern += pick(r, patternForms...)
	case 2:
		at := r.IntN(len(pattern) + 1)
		pattern = strings.ToValidUTF8(pattern[:at]+pick(r, "(", ")", "[", "]", "{", "}", "*", "?", "+", "\\", "|", "^", "$", "-", "a", "(?i)", "{3}", "\\d", "[[:alpha:]]")+pattern[at:], "")
	}
	// Most patterns are valid, because one invalid pattern makes the whole text invalid.
	if _, err := regexp.Compile(pattern); err != nil && chance(r, 85) {
		pattern = pick(r, patternForms[:12]...)
	}
	switch r.IntN(4) {
	case 0:
		return "'" + strings.ReplaceAll(pattern, "'", "''") + "'"
	case 1:
		return jsonString(pattern)
	default:
		// Without quotes where YAML allows it, and sometimes where it does not.
		bare := strings.ReplaceAll(pattern, "\n", " ")
		if read := yamlText("[" + bare + "]"); read.JSON == "" && chance(r, 85) {
			return jsonString(pattern)
		}
		return bare
	}
}
