package schema

import (
	"fmt"
	"strings"
)

// Perm is the rule that says who may call a method.
type Perm struct {
	// Op is one of
	//   "all"          every authenticated user
	//   "world"        everybody, authenticated or not
	//   "root"         root@pam only (PVE declares no rule)
	//   "perm"         Privs on Path; see Any and If
	//   "and", "or"    Args
	//   "userid-param" Arg is "self" or the privilege needed on the realm
	//   "userid-group" Privs on one of the user's groups; see Groups
	//   "perm-modify"  the right to change the ACL of Path
	Op     string
	Path   string   // ACL path, with {parameter} placeholders
	Privs  []string // privileges
	Any    bool     // one of Privs is enough; otherwise all are needed
	If     string   // the rule counts only if this parameter was given; it fails otherwise
	Arg    string
	Groups string // "create" or "update": the groups come from the groups parameter
	Args   []Perm
}

// parsePerm reads the prefix form described in the package comment.
func parsePerm(s string) (Perm, error) {
	toks := strings.Fields(strings.NewReplacer("(", " ( ", ")", " ) ").Replace(s))
	p, rest, err := permExpr(toks)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("permission %q: %q is left over", s, strings.Join(rest, " "))
	}
	return p, err
}

func permExpr(t []string) (Perm, []string, error) {
	if len(t) == 0 {
		return Perm{}, nil, fmt.Errorf("permission ends early")
	}
	if t[0] != "(" {
		return Perm{Op: t[0]}, t[1:], nil
	}
	if len(t) < 2 {
		return Perm{}, nil, fmt.Errorf("permission ends after a parenthesis")
	}
	p := Perm{Op: t[1]}
	t = t[2:]
	if (p.Op == "perm" || p.Op == "perm-modify") && len(t) > 0 {
		p.Path, t = t[0], t[1:]
	}
	for len(t) > 0 {
		switch w := t[0]; {
		case w == ")":
			return p, t[1:], nil
		case w == "(":
			sub, rest, err := permExpr(t)
			if err != nil {
				return p, nil, err
			}
			p.Args, t = append(p.Args, sub), rest
			continue
		case w == ":any":
			p.Any = true
		case (w == ":if" || w == ":groups") && len(t) > 1:
			if w == ":if" {
				p.If = t[1]
			} else {
				p.Groups = t[1]
			}
			t = t[1:]
		case p.Op == "userid-param":
			p.Arg = w
		default:
			p.Privs = append(p.Privs, w)
		}
		t = t[1:]
	}
	return p, nil, fmt.Errorf("permission %q is not closed", p.Op)
}
