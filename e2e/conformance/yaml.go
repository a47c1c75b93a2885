package main

import (
	"math/rand/v2"
	"strings"

	"sigs.k8s.io/yaml"
)

// A YAMLText is a text, with the JSON that kubectl and kubelet read from its first document. JSON is absent if they refuse the text.
type YAMLText struct {
	Text string `json:"text"`
	JSON string `json:"json,omitempty"`
}

// yamlText returns a case with the answer of sigs.k8s.io/yaml.
func yamlText(text string) YAMLText {
	converted, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return YAMLText{Text: text}
	}
	return YAMLText{Text: text, JSON: string(converted)}
}

// yamlTexts returns texts on which parsers differ, the same texts with a few characters changed, and random nodes in all styles.
func yamlTexts(r *rand.Rand, random int) []YAMLText {
	var all []YAMLText
	for _, text := range yamlForms {
		all = append(all, yamlText(text))
	}
	for range random {
		all = append(all, yamlText(damaged(r, pick(r, yamlForms...))), yamlText(randomNode(r, 0, false)+"\n"))
	}
	return all
}

// yamlForms are texts on which parsers differ.
var yamlForms = []string{
	// Flow collections and quoted texts that end at or before the column of the key.
	"apiVersion: apps/v1\nspec:\n  containers:\n    - name: c\n      args: [\n        \"serve\",\n        \"--port=80\"\n      ]\n      image: r/web:1\n",
	"a:\n  b: [\n    'sh', '-c',\n    'exec app'\n  ]\n  c: Always\n", "a:\n    b: [\n      \"a\"\n  ]\n", "a:\n  b: [\"x\",\n  \"y\"]\n",
	"a:\n  resources: {requests: {cpu: \"1\",\n  memory: \"1Gi\"}}\n", "a: [\n\t\t\"a\",\n\t\t\"b\" ]\n", "a:\n  b: {\n}\n  c: d\n", "a: [\nb,\nc: d\n]\n",
	"a: \"first\n second\"\nb: c\n", "  a: \"first\n  second\"\n", "a:\n  b: 'first\nsecond'\n", "a:\n  b: \"first\n    second\n  \"\n",
	"a: \"first\\\n  \\ second\"\n", "a: \"x\n\n\n y\"\n", "a: 'x\n\n  y'\n", "- \"a\n- b\"\n", "\"a\nb\": c\n", "'a': 'it''s'\n",
	// Tabs and comments.
	"a:\tb\n", "a: b\t# c\n", "a: \"b\"#c\n", "a: 'b'#c\nd: [e]#f\n", "a: b#c\n", "-\ta\n-\tb\n", "-\ta: b\n", "\ta: b\n", "a:\n\tb: c\n", "a:\n  - b\n\t- c\n",
	"a: b\n\t\nc: d\n", "a: [b,\t# c\n\td]\n", "? a\n:\tb\n", "#\ta\n\t# b\na: b\n", "a: |\t# x\n  b\n", "a: >\n  b\n\tc\n",
	// Blocks.
	"a: |\n  b\n  c\n", "a: |\n  b", "a: |+\n  b\n\n", "a: |-\n  b\n\n", "a: >\n  b\n  c\n\n  d\n", "a: >-\n  b\n   c\n  d\n", "a: |2\n   b\n", "a: |+2\n   x\n\n  y\n\nb: >-\n  f", "a: |\n\n\n  b\n   c\n d: e\n",
	"a: |\nb: c\n", "a: |0\n  b\n", "- |\n a\n-  >\n  b\n", "a: |\n  b\r\n  c\r\n", "a: |+\n\n ", "|\n a\n", "--- |\n a\n",
	// Scalars.
	"[off, Off, oFF, y, NO, 'off', ~, null, nUll, \"\", '~', =, <<]\n", "[1, -1, +1, 010, 08, 0o7, 0x1F, -0x10, 0b11, -0b11, 0b2, 0x, 1_000, 1__0, _1, 1_]\n",
	"[1.5, .5, +.5, -.5, 1., 1e3, 1E+3, 1e400, 1.50, 0.1e1, 1.2.3, 1:20, 190:20:30, ., .e1, ..5, 1e21, 1e-7]\n", "[9223372036854775807, 9223372036854775808, 18446744073709551615, -9223372036854775808]\n",
	"[2001-01-01, 2001-12-14t21:59:43.10-05:00, v1, 1-2, a b, a#b, http://a:80/b, a:b, -a, '- a', '@a', 1Gi, 100m]\n", "a: .inf\n", "a: -.Inf\n", "a: .NaN\n",
	"a: !!str 1\nb: !!int '3'\nc: !!float 1\nd: !!bool 'yes'\ne: !local 1\nf: ! 1\ng: !!null ''\n", "a: !!int x\n", "a: !!bool 1\n", "a: !!null x\n", "a: !!binary aGk=\n", "a: !!binary |\n  aG\n  k=\n", "a: !!binary aG k=\n",
	"!!map {a: !!seq [b]}\n", "a: !!str\n", "a: !<tag:yaml.org,2002:str> 1\n", "%TAG !e! tag:yaml.org,2002:\n---\na: !e!str 3\n", "a: !x!y z\n", "\"\\u263a\\x41\\n\\t\\0\\e\\_\\N\": \"\\\\\\\"\"\n", "a: \"\\q\"\n", "a: \"b\\/c\"\n", "a: \"b\\\\/c\"\n", "[a?b]\n", "{a: b ?c}\n", "a: [{b: c?}]\nd: e?\n", "a: [\"b?\", 'c?']\n",
	// Keys, anchors and merges.
	"true: 1\n1: 2\n0x10: 3\n1.5: 4\nnull: 5\n", "yes: 1\n2: 2\n1e3: 3\n", "1e6: 1\n1234567.0: 2\n1.50: 3\n16777217.0: 4\n1e-5: 5\n-0.0: 6\n1e30: 7\n1e39: 8\n", "18446744073709551615: 1\n", "~: a\n", ": a\n", "? a\n: b\n? c\n", "? [a]\n: b\n", "[a]: b\n", "a: 1\na: 2\n", "a: 1\n a: 2\n", "a\n", "a: b: c\n", "a : b\n", "'a' : b\n", "{a: 1, 'b': 2, \"c\":3, d}\n",
	"base: &base {a: 1, b: 2}\nx: {<<: *base, b: 3}\ny: {b: 4, <<: [{a: 5}, *base]}\nz: *base\n", "a: {<<: {b: 1}, <<: {b: 2}}\n", "a: {'<<': {b: 1}, !!merge <<: {c: 1}}\n", "<<: [1]\n", "<<: ~\n", "- <<\n",
	"a: &a [*a]\n", "a: &a 1\nb: &a [*a]\n", "a: *b\n", "&a a: &b b\nc: *a\nd: *b\n", "a: &a\nb: *a\n", "- &a {b: c}\n- *a\n- {*a : d}\n", "a: &a 1\nb: &a 2\nc: *a\n",
	// Documents, marks and line ends.
	"", "\n# a\n", "---\n", "--- a\n--- b\n", "a: 1\n...\nb: [\n", " a: 1\nb: 2\n", " a: 1\n@\n", " a: 1\nb: @\n", "a: 1\n...\n@\n", "a: 1\n--- @\n", "a: 1\n---\n\"b\n", "a\n...\n'b\n", "[a]\n@\n", "--- |\n a\n---\n@\n", "a: 1\n%FOO\n", "a: 1\n...\n%FOO\n", "a: 1\n...\n\ta\n", "---\na: 1\n---\nb: 2\n", "%YAML 1.1\n---\na: 1\n", "%YAML 2.0\n---\na: 1\n", "%FOO\n---\na: 1\n", "\ufeffa: b\n", "a: b\r\nc:\r\n  - d\r\n", "a: b\rc: d\r", "a: b\u0085c: d\n", "a: 'b\u2028 c'\n", "a: b\x07\n", "a: \"b\x00\"\n", "a: é☺𝄞\n",
	"---\na: ---\nb: '---'\n", "a: @b\n", "a: `b`\n", "a: %b\n", "%a: b\n", "a: [b]c\n", "a: {b}: c\n", "a: [b, , c]\n", "[a, b\n", "{a: b\n", "a: 'b\n", "a: \"b\n", "a: ]\n", "- a\nb: c\n", "a: b\n- c\n", "a:\n- b\n- c\nd: e\n", "a:\n  - b\n c: d\n",
}

// yamlPieces are inserted to damage a text.
var yamlPieces = []string{
	"'", "\"", "[", "]", "{", "}", ":", ": ", ",", ", ", "\n", "\n ", "\n  ", "\n    ", "\t", " ", "#", " #c", "- ", "-", "? ", "&a ", "*a", "!!str ", "|", ">", "|+\n", "@", "`", "\\", "\r\n", "é", "~", "null", "off", "0x1f", "1_0", "<<: ", "''", "\"\"",
}

// damaged returns the text with up to three changes: a piece inserted, characters removed, a line indented differently, or its end cut
// off.
func damaged(r *rand.Rand, text string) string {
	for range pick(r, 1, 1, 2, 3) {
		at := r.IntN(len(text) + 1)
		switch lines := strings.Split(text, "\n"); r.IntN(5) {
		case 0, 1:
			text = text[:at] + pick(r, yamlPieces...) + text[at:]
		case 2:
			text = text[:at] + text[min(len(text), at+1+r.IntN(4)):]
		case 3:
			line := r.IntN(len(lines))
			bare := strings.TrimLeft(lines[line], " ")
			lines[line] = strings.Repeat(" ", max(0, len(lines[line])-len(bare)+pick(r, -4, -2, -1, 1, 2))) + bare
			text = strings.Join(lines, "\n")
		default:
			text = text[:at]
		}
	}
	return strings.ToValidUTF8(text, "")
}

// randomNode returns a node in flow or block style, with usual and unusual white space.
func randomNode(r *rand.Rand, depth int, inFlow bool) string {
	space := func() string { return pick(r, "", " ", "\n", "\n  ", "\t", " # c\n", "\n\t") }
	if depth > 3 || chance(r, 30) {
		return pick(r, "a", "b c", "'q'", "\"d\"", "1", "off", "~", "", "x:y", "http://h/p", "a#b", "'it''s'", "\"a\\tb\"", "-1", "- x", "*a", "&a v", "!!str 1", "|\n  x\n", "\"a\n b\"", "'a\nb'", "[x]", "{x: y}", "-", "a\n  b", ":x", " ", "\t", "@x", "\"x\"#c")
	}
	if inFlow || chance(r, 40) {
		var items []string
		isList := chance(r, 50)
		for range r.IntN(4) {
			item := randomNode(r, depth+1, true) + space()
			if !isList {
				item = pick(r, "a", "'b'", "\"c\"", "? d") + pick(r, ": ", ":", " : ", ":\t", "") + item
			}
			items = append(items, item)
		}
		inner := space() + strings.Join(items, ","+space()) + space()
		if isList {
			return "[" + inner + "]"
		}
		return "{" + inner + "}"
	}
	var text strings.Builder
	isList := chance(r, 50)
	indent := pick(r, "", " ", "  ", "    ")
	for range 1 + r.IntN(3) {
		value := randomNode(r, depth+1, false)
		mark := pick(r, "a", "b", "'c'", "\"d\"", "? e\n") + pick(r, ": ", ":\n", ":\t", ":  ")
		if isList {
			mark = pick(r, "- ", "-\n", "-\t")
		}
		text.WriteString(indent + mark + strings.ReplaceAll(value, "\n", "\n"+pick(r, "", " ", "  ", "  ", "    ")) + "\n")
	}
	return text.String()
}
