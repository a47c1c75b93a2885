package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tolerarch.io/e2e/manifests/chart"
)

var (
	usesLine  = regexp.MustCompile(`(?m)^\s*(?:- )?uses:\s*(.*)$`)
	pinnedUse = regexp.MustCompile(`^([a-z0-9-]+/[a-z0-9-]+)(?:/[a-z-]+)*@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)$`)
)

// Actions are pinned by commit, as a tag can move to other code. All uses of an action have the same version.
func TestActionsArePinnedByCommit(t *testing.T) {
	workflows, err := filepath.Glob(filepath.Join(chart.Repository, ".github/workflows/*"))
	if err != nil || len(workflows) < 2 {
		t.Fatal(workflows, err)
	}
	pins := map[string]string{}
	for _, file := range workflows {
		name := ".github/workflows/" + filepath.Base(file)
		for _, match := range usesLine.FindAllStringSubmatch(readFile(t, name), -1) {
			pin := pinnedUse.FindStringSubmatch(match[1])
			if strings.HasPrefix(match[1], "./") {
				// A workflow of this repository is used at the commit of its caller.
			} else if pin == nil {
				t.Errorf("%s: %s is not pinned: owner/action@commit # version", name, match[1])
			} else if other, ok := pins[pin[1]]; ok && other != pin[2]+pin[3] {
				t.Errorf("%s: %s has another version elsewhere", name, pin[1])
			} else {
				pins[pin[1]] = pin[2] + pin[3]
			}
		}
	}
	if len(pins) < 5 {
		t.Error(pins)
	}
}

func TestUnpinnedActionsAreRefused(t *testing.T) {
	const commit = "11bd71901bbe5b1630ceea73d27597364c9af683"
	for _, use := range []string{"actions/checkout@v4", "actions/checkout@" + commit, "actions/checkout@" + commit[1:] + " # v4.2.2", "docker://alpine:3"} {
		if pinnedUse.MatchString(use) {
			t.Errorf("%s counts as pinned", use)
		}
	}
}
