package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// TestSchemaTakesWhatIsWritten: an editor does not underline what adopt writes,
// nor the examples.
func TestSchemaTakesWhatIsWritten(t *testing.T) {
	schemas := map[string]*jsonschema.Schema{}
	for _, k := range kind.All {
		var b bytes.Buffer
		if err := writeSchema(&b, k); err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(&b)
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(k.Name, doc); err != nil {
			t.Fatal(err)
		}
		if schemas[k.Name], err = c.Compile(k.Name); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	check := func(where string, text []byte) {
		t.Helper()
		for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
			var doc map[string]any
			if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			name, _ := doc["kind"].(string)
			if schemas[name] == nil {
				continue // a cluster's config or composition
			}
			raw, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			if err := schemas[name].Validate(v); err != nil {
				t.Errorf("%s: %v\n%s", where, err, raw)
			}
			seen[name]++
		}
	}
	s := pvesim.Estate(3, 60, 2)
	for id, g := range s.Guests {
		if g.Kind == "lxc" && id%2 == 0 {
			g.Config["swap"] = "0"
		} else if g.Kind == "qemu" && id%2 == 0 {
			g.Config["balloon"], g.Config["hotplug"] = "0", "0"
		}
	}
	check("adopt", []byte(repoFor(t, estateOf(t, s))(0, "adopt", "--stdout")))
	files, err := filepath.Glob("../../examples/*/*/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		check(f, text)
	}
	for _, k := range kind.All {
		if seen[k.Name] == 0 {
			t.Errorf("no %s was looked at", k.Name)
		}
	}
}
