package pvesim

import (
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// permitted evaluates the rule that the schema declares for a method: PVE's check_api2_permissions. It comes before the schema check,
// so the parameters may still be anything.
func (w *World) permitted(who Identity, rule schema.Perm, p Params) error {
	switch {
	case who.RootTicket() || rule.Op == "all" || rule.Op == "world":
		return nil
	case rule.Op == "root":
		return permErr("user != root@pam")
	}
	ok, err := w.rule(who, rule, p, false)
	if err == nil && !ok {
		return permErr("")
	}
	return err
}

// rule evaluates one rule. quiet is PVE's noerr: alternatives are refused by saying no, not by an error.
func (w *World) rule(who Identity, rule schema.Perm, p Params, quiet bool) (bool, error) {
	switch rule.Op {
	case "and":
		for _, r := range rule.Args {
			if ok, err := w.rule(who, r, p, quiet); err != nil || !ok {
				return false, err
			}
		}
		return true, nil
	case "or":
		for _, r := range rule.Args {
			if ok, err := w.rule(who, r, p, true); err != nil || ok {
				return ok, err
			}
		}
		return false, nil
	case "perm":
		if rule.If != "" && p[rule.If] == nil {
			return false, nil
		}
		check := w.check
		if rule.Any {
			check = w.checkAny
		}
		return verdict(check(who, fillPath(rule.Path, p), rule.Privs...), quiet)
	case "perm-modify":
		path := fillPath(rule.Path, p)
		if path == "" {
			return false, nil
		}
		return verdict(w.checkPermModify(who, path), quiet)
	case "userid-param":
		return w.ruleUser(who, rule.Arg, p.Str("userid"), quiet)
	case "userid-group":
		return w.ruleGroup(who, rule, p, quiet)
	}
	return false, nil
}

func verdict(err error, quiet bool) (bool, error) {
	if quiet {
		return err == nil, nil
	}
	return err == nil, err
}

// ruleUser is userid-param: the caller asks about himself, or has a privilege on the realm of the user.
func (w *World) ruleUser(who Identity, arg, userid string, quiet bool) (bool, error) {
	realm, err := verifyUser(userid)
	if err != nil {
		return false, err
	}
	if arg != "self" {
		return verdict(w.check(who, "/access/realm/"+realm, arg), quiet)
	}
	if err := w.userExists(userid); err != nil {
		return verdict(err, quiet)
	}
	if who.AuthID() == userid { // a token is not its user
		return true, nil
	}
	return verdict(permErr(""), quiet)
}

// ruleGroup is userid-group: a privilege on all groups, or on one that the user is in; and on those that the user is put into.
func (w *World) ruleGroup(who Identity, rule schema.Perm, p Params, quiet bool) (bool, error) {
	userid := p.Str("userid")
	if rule.Groups != "create" {
		if err := w.userExists(userid); err != nil {
			return verdict(err, quiet)
		}
	}
	if w.canAny(who, "/access/groups", rule.Privs...) {
		return true, nil
	}
	mine := w.groupsWith(who, rule.Privs...)
	if rule.Groups != "" {
		groups := p.List("groups")
		if len(groups) == 0 {
			return false, permErr("/access/groups, " + strings.Join(rule.Privs, "|"))
		}
		for _, g := range groups {
			if !slices.Contains(mine, g) {
				return false, permErr("/access/groups/" + g + ", " + strings.Join(rule.Privs, "|"))
			}
		}
	}
	if rule.Groups != "create" && !w.inAny(userid, mine) {
		return verdict(permErr(""), quiet)
	}
	return true, nil
}

// groupsWith are the groups on which the caller has one of the privileges.
func (w *World) groupsWith(who Identity, privs ...string) []string {
	var out []string
	for _, id := range sortedKeys(w.Access.Groups) {
		if w.canAny(who, "/access/groups/"+id, privs...) {
			out = append(out, id)
		}
	}
	return out
}

func (w *World) inAny(user string, groups []string) bool {
	return slices.ContainsFunc(groups, func(id string) bool { return w.Access.Groups[id].Users[user] })
}

// verifyUser checks the form of user@realm and returns the realm.
func verifyUser(s string) (realm string, err error) {
	if len(s) < 3 {
		return "", die("user name '%s' is too short", s)
	}
	if len(s) > 64 {
		return "", die("user name '%s' is too long (%d > 64)", s, len(s))
	}
	at := strings.LastIndexByte(s, '@')
	if at < 1 || strings.ContainsAny(s[:at], " \t\r\n:/") || schema.CheckFormat("pve-realm", s[at+1:]) != nil {
		return "", die("value '%s' does not look like a valid user name", s)
	}
	return s[at+1:], nil
}

func (w *World) userExists(id string) error {
	if w.Access.Users[id] == nil {
		return die("no such user ('%s')", id)
	}
	return nil
}

// fillPath puts parameters into an ACL path; "" when that gives none.
func fillPath(path string, p Params) string {
	parts := strings.Split(path, "/")
	for i, s := range parts {
		if strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") {
			parts[i] = p.Str(s[1 : len(s)-1])
		}
	}
	return normalPath(strings.Join(parts, "/"))
}
