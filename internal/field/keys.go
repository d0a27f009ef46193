package field

import "github.com/proxops/proxops/internal/yamldoc"

// Admit is what a row may send to PVE, in PVE's spelling, so that it can be
// joined with PVE's own schema.
type Admit struct {
	Path       string
	Key, Token string
	Type       Type
	CreateOnly bool
	Enum       []string // the enum in wire spelling
	Examples   []string // the examples in wire spelling
}

// Admits lists what the rows of a specimen may send.
func Admits(b *Block) ([]Admit, error) {
	var out []Admit
	for _, r := range Rows(b) {
		if r.Key == "" || r.Role != RoleToken && r.Role != RolePool || r.Name == "" {
			continue
		}
		a := Admit{Path: r.Path, Key: r.Key, Token: r.Token, Type: r.Type, CreateOnly: r.CreateOnly}
		for _, e := range r.Type.Enum {
			text, err := r.wire(yamldoc.Str(e))
			if err != nil {
				return nil, err
			}
			a.Enum = append(a.Enum, text)
		}
		nodes, err := r.Examples()
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			text, err := r.wire(n)
			if err != nil {
				return nil, err
			}
			a.Examples = append(a.Examples, text)
		}
		out = append(out, a)
	}
	return out, nil
}
