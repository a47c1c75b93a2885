package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tolerarch.io/e2e/manifests/chart"
)

var (
	fenced  = regexp.MustCompile("(?s)```.*?```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notSlug = regexp.MustCompile("[^a-z0-9 _-]")
	isFile  = regexp.MustCompile(`\.(json|rs|yaml)$`)
	values  = regexp.MustCompile("(?s)<!-- tolerarch's configuration -->\n```yaml\n(.*?)```")
	dotted  = regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z]+)+)(?:`|: |=)")
)

// pages returns all pages of the repository by their paths, without fenced blocks.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, file := range repositoryFiles(t) {
		if filepath.Ext(file) == ".md" {
			found[file] = fenced.ReplaceAllString(readFile(t, file), "")
		}
	}
	if len(found) < 10 {
		t.Fatal(found)
	}
	return found
}

// repositoryFiles returns the paths of all files in the repository, without build output.
func repositoryFiles(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(chart.Repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "target" || name == ".git") {
			return filepath.SkipDir
		}
		if entry.IsDir() {
			return nil
		}
		file, err := filepath.Rel(chart.Repository, path)
		found = append(found, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// slugs returns the anchors of a page's headings, as GitHub makes them.
func slugs(page string) map[string]bool {
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(page, -1) {
		text := link.ReplaceAllString(match[1], "")
		found[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-")] = true
	}
	return found
}

// Relative links lead to existing files and headings, and the README links every page beside it and in docs. Other hosts get no
// requests.
func TestLinks(t *testing.T) {
	pages := pages(t)
	for page, text := range pages {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(chart.Repository, path)); err != nil {
				t.Errorf("%s: %s is not there", page, match[1])
			} else if anchor != "" && !slugs(pages[path])[anchor] {
				t.Errorf("%s: %s: no such heading", page, match[1])
			}
		}
	}
	for page := range pages {
		folder := filepath.Dir(page)
		isLinked := strings.Contains(pages["README.md"], "("+page+")") || page == "README.md"
		if (folder == "." || folder == "docs" || folder == "docs/from") && !isLinked {
			t.Errorf("the README does not link %s", page)
		}
	}
}

func TestReadmeIsShort(t *testing.T) {
	if lines := strings.Count(readFile(t, "README.md"), "\n"); lines > 200 {
		t.Errorf("%d lines", lines)
	}
}

// Chart values in pages for users of other tools render.
func TestValuesInPagesRender(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(chart.Repository, "docs/from/*.md"))
	if err != nil || len(files) < 7 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks := values.FindAllSubmatch(page, -1)
		if len(blocks) == 0 {
			t.Errorf("%s shows no values", file)
		}
		for _, block := range blocks {
			shown := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(shown, block[1], 0o600); err != nil {
				t.Fatal(err)
			}
			rendering, err := chart.Template("tolerarch", "tolerarch", "--values", shown)
			if err != nil {
				t.Errorf("%s: %v\n%s", file, err, block[1])
				continue
			}
			installed(t, rendering, "tolerarch")
		}
	}
}

// Words in pages that look like a chart value or a configuration key are one.
func TestKeysInPagesExist(t *testing.T) {
	var values, config map[string]any
	for file, into := range map[string]*map[string]any{
		chart.Directory + "/values.schema.json": &values, "manifests/config.schema.json": &config,
	} {
		if err := json.Unmarshal([]byte(readFile(t, file)), into); err != nil {
			t.Fatal(err)
		}
	}
	checked := 0
	for page, text := range pages(t) {
		// The changelog may name keys that were removed.
		if page == "CHANGELOG.md" {
			continue
		}
		for _, match := range dotted.FindAllStringSubmatch(text, -1) {
			if isFile.MatchString(match[1]) {
				continue
			}
			inValues, isValue := resolve(values, match[1])
			inConfig, isKey := resolve(config, match[1])
			if (isValue || isKey) && !inValues && !inConfig {
				t.Errorf("%s: there is no %s", page, match[1])
			}
			checked++
		}
	}
	if checked < 50 {
		t.Errorf("%d keys", checked)
	}
}

// resolve returns whether a schema has a path, and whether it has the path's first key.
func resolve(schema map[string]any, path string) (found, begins bool) {
	for _, key := range strings.Split(path, ".") {
		properties, ok := schema["properties"].(map[string]any)
		if !ok {
			// The items of a map or a list.
			return begins, begins
		}
		if schema, ok = properties[key].(map[string]any); !ok {
			return false, begins
		}
		begins = true
	}
	return true, begins
}
