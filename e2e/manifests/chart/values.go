package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value is a key of values.yaml that has a description, or a group of such keys.
type value struct {
	name         string // with the names of its groups, such as image.tag
	description  string
	schema       map[string]any // from @schema
	defaultValue any
	children     []*value
}

// readValues reads values.yaml. Every key needs a description, or else every key below it.
func readValues(text []byte) (*value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	root := &value{}
	return root, root.read(document.Content[0])
}

// read reads the keys of a mapping as children.
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
		if err := node.Decode(&child.defaultValue); err != nil {
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

// readComment reads the description and the schema from the comment of a key.
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

// jsonSchema returns the schema of the value. It refuses additional keys only in the chart's groups: a parent chart, Rancher and Helm
// add keys at the top level and in global.
func (v *value) jsonSchema() map[string]any {
	schema := map[string]any{}
	if v.description != "" {
		schema["description"] = v.description
	}
	switch v.defaultValue.(type) {
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
				properties[child.key()] = child.jsonSchema()
			}
			schema["properties"] = properties
			if v.name != "" && v.name != "global" {
				schema["additionalProperties"] = false
			}
		}
	}
	maps.Copy(schema, v.schema)
	// A key without a value gets its default. Helm passes null for such a key in a parent chart.
	schema["type"] = orNull(schema["type"])
	if choices, ok := schema["enum"].([]any); ok {
		schema["enum"] = append(choices, nil)
	}
	return schema
}

// key returns the last part of the name.
func (v *value) key() string {
	return v.name[strings.LastIndex(v.name, ".")+1:]
}

// orNull returns a type or a list of types of a schema with null.
func orNull(types any) []any {
	if list, ok := types.([]any); ok {
		return append(list, "null")
	}
	return []any{types, "null"}
}

// defaults returns what keys without a value mean. A map of arbitrary keys is empty then, as null is the only way to remove its
// defaults. Values in global and the program's configuration have their defaults elsewhere.
func (v *value) defaults() any {
	if len(v.children) == 0 {
		if _, ok := v.defaultValue.(map[string]any); ok {
			return map[string]any{}
		}
		return v.defaultValue
	}
	all := map[string]any{}
	for _, child := range v.children {
		if child.name != "global" {
			all[child.key()] = child.defaults()
		}
	}
	return all
}

// writeRows writes the rows of the table in the README.
func (v *value) writeRows(table *strings.Builder) error {
	if v.description == "" {
		for _, child := range v.children {
			if err := child.writeRows(table); err != nil {
				return err
			}
		}
		return nil
	}
	defaultText, err := json.Marshal(v.defaultValue)
	if err != nil {
		return err
	}
	defaultCell := "`" + string(defaultText) + "`"
	if len(defaultText) > 80 {
		defaultCell = "see [values.yaml](values.yaml)"
	}
	_, err = fmt.Fprintf(table, "| `%s` | %s | %s |\n", v.name, defaultCell, strings.ReplaceAll(v.description, "|", `\|`))
	return err
}
