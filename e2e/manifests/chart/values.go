package chart

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value is a key of values.yaml that has a description, or a group of such keys.
type value struct {
	name        string
	description string
	schema      map[string]any // from @schema
	fallback    any
	children    []*value
}

// readValues reads values.yaml. Every key needs a description of its own, or of all keys below it.
func readValues(text []byte) (*value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	root := &value{}
	return root, root.read(document.Content[0])
}

func (v *value) read(mapping *yaml.Node) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		child := &value{name: key.Value}
		if v.name != "" {
			child.name = v.name + "." + key.Value
		}
		v.children = append(v.children, child)
		if err := child.readComment(key.HeadComment); err != nil {
			return err
		}
		if err := node.Decode(&child.fallback); err != nil {
			return err
		}
		if child.description != "" {
			continue
		}
		if node.Kind != yaml.MappingNode || len(node.Content) == 0 {
			return fmt.Errorf("values.yaml: %s has no comment that begins with # --", child.name)
		}
		if err := child.read(node); err != nil {
			return err
		}
	}
	return nil
}

func (v *value) readComment(comment string) error {
	// Only the paragraph directly above a key belongs to it.
	paragraphs := strings.Split(comment, "\n\n")
	for _, line := range strings.Split(paragraphs[len(paragraphs)-1], "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "#"))
		if schema, ok := strings.CutPrefix(line, "@schema "); ok {
			if err := json.Unmarshal([]byte(schema), &v.schema); err != nil {
				return fmt.Errorf("values.yaml: %s: @schema: %w", v.name, err)
			}
		} else if text, ok := strings.CutPrefix(line, "-- "); ok {
			v.description = text
		} else if v.description != "" {
			v.description += " " + line
		}
	}
	return nil
}

// jsonSchema returns the schema of the value. Additional keys are refused only in groups of the chart itself: a parent chart, Rancher
// and Helm add others at the top level and in global.
func (v *value) jsonSchema() map[string]any {
	schema := map[string]any{}
	if v.description != "" {
		schema["description"] = v.description
	}
	switch v.fallback.(type) {
	case string:
		schema["type"] = "string"
	case bool:
		schema["type"] = "boolean"
	case int:
		schema["type"] = "integer"
	case []any:
		schema["type"] = "array"
	default:
		schema["type"] = "object"
		if len(v.children) > 0 {
			properties := map[string]any{}
			for _, child := range v.children {
				properties[child.name[strings.LastIndex(child.name, ".")+1:]] = child.jsonSchema()
			}
			schema["properties"] = properties
			if v.name != "" && v.name != "global" {
				schema["additionalProperties"] = false
			}
		}
	}
	for key, said := range v.schema {
		schema[key] = said
	}
	// A key without a value has its default. Helm passes null if a parent chart has such a key.
	schema["type"] = orNull(schema["type"])
	if choices, ok := schema["enum"].([]any); ok {
		schema["enum"] = append(choices, nil)
	}
	return schema
}

func orNull(types any) []any {
	if several, ok := types.([]any); ok {
		return append(several, "null")
	}
	return []any{types, "null"}
}

// defaults returns the values of keys without a value. A map of arbitrary keys has none, as null is the only way to remove its
// defaults. Shared values (global) and the program's configuration have their defaults elsewhere.
func (v *value) defaults() any {
	if len(v.children) == 0 {
		if _, ok := v.fallback.(map[string]any); ok {
			return map[string]any{}
		}
		return v.fallback
	}
	all := map[string]any{}
	for _, child := range v.children {
		if child.name != "global" {
			all[child.name[strings.LastIndex(child.name, ".")+1:]] = child.defaults()
		}
	}
	return all
}

// rows writes the rows of the table in the README.
func (v *value) rows(table *strings.Builder) error {
	if v.description == "" {
		for _, child := range v.children {
			if err := child.rows(table); err != nil {
				return err
			}
		}
		return nil
	}
	fallback, err := json.Marshal(v.fallback)
	if err != nil {
		return err
	}
	shown := "`" + string(fallback) + "`"
	if len(fallback) > 80 {
		shown = "see [values.yaml](values.yaml)"
	}
	_, err = fmt.Fprintf(table, "| `%s` | %s | %s |\n", v.name, shown, strings.ReplaceAll(v.description, "|", `\|`))
	return err
}
