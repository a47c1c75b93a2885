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
	fencedBlock = regexp.MustCompile("(?s)```.*?```")
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading     = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInSlug   = regexp.MustCompile("[^a-z0-9 _-]")
	fileName    = regexp.MustCompile(`\.(json|rs|yaml)$`)
	valuesBlock = regexp.MustCompile("(?s)<!-- tolerarch's configuration -->\n```yaml\n(.*?)```")
	dottedKey   = regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z]+)+)(?:`|: |=)")
)

// pages returns the text of all pages of the repository by their paths, without fenced blocks.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, file := range repositoryFiles(t) {
		if filepath.Ext(file) == ".md" {
			texts[file] = fencedBlock.ReplaceAllString(readFile(t, file), "")
		}
	}
	if len(texts) < 10 {
		t.Fatal(texts)
	}
	return texts
}

// repositoryFiles returns the paths of all files in the repository, without build output.
func repositoryFiles(t *testing.T) []string {
	t.Helper()
	var files []string
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
		files = append(files, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// slugs returns the anchors of a page's headings, as GitHub makes them.
func slugs(page string) map[string]bool {
	anchors := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(page, -1) {
		text := link.ReplaceAllString(match[1], "")
		slug := notInSlug.ReplaceAllString(strings.ToLower(text), "")
		anchors[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return anchors
}

// Relative links lead to existing files and headings, and the README links every page beside it and in docs. Links to other hosts are
// not checked.
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
				t.Errorf("%s: %s does not exist", page, match[1])
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

// The chart renders with the values that the pages for users of other tools contain.
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
		blocks := valuesBlock.FindAllSubmatch(page, -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no block with values", file)
		}
		for _, block := range blocks {
			valuesFile := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(valuesFile, block[1], 0o600); err != nil {
				t.Fatal(err)
			}
			rendering, err := chart.Template("tolerarch", "tolerarch", "--values", valuesFile)
			if err != nil {
				t.Errorf("%s: %v\n%s", file, err, block[1])
				continue
			}
			checkedInstallation(t, rendering, "tolerarch")
		}
	}
}

// Each word in a page that looks like a chart value or a configuration key is one.
func TestKeysInPagesExist(t *testing.T) {
	var values, config map[string]any
	for file, schema := range map[string]*map[string]any{
		chart.Directory + "/values.schema.json": &values, "manifests/config.schema.json": &config,
	} {
		if err := json.Unmarshal([]byte(readFile(t, file)), schema); err != nil {
			t.Fatal(err)
		}
	}
	checked := 0
	for page, text := range pages(t) {
		// The changelog may name keys that were removed.
		if page == "CHANGELOG.md" {
			continue
		}
		for _, match := range dottedKey.FindAllStringSubmatch(text, -1) {
			if fileName.MatchString(match[1]) {
				continue
			}
			isValue, looksLikeValue := resolve(values, match[1])
			isKey, looksLikeKey := resolve(config, match[1])
			if (looksLikeValue || looksLikeKey) && !isValue && !isKey {
				t.Errorf("%s: there is no %s", page, match[1])
			}
			checked++
		}
	}
	if checked < 50 {
		t.Errorf("only %d keys", checked)
	}
}

// resolve returns whether a schema has a path, and whether it has the first key of the path.
func resolve(schema map[string]any, path string) (hasPath, hasFirstKey bool) {
	for _, key := range strings.Split(path, ".") {
		properties, ok := schema["properties"].(map[string]any)
		if !ok {
			// A schema does not name the keys below a map or a list.
			return hasFirstKey, hasFirstKey
		}
		if schema, ok = properties[key].(map[string]any); !ok {
			return false, hasFirstKey
		}
		hasFirstKey = true
	}
	return true, hasFirstKey
}
