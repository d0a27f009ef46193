// Package schema holds the parameter schema of the Proxmox VE 9.2 REST API in a
// compact form of its own and checks requests against it the way PVE's
// JSONSchema code does, down to the wording of each refusal.
//
// It knows nothing of guests, storages or tasks: what depends on state (an
// absent volume, a locked guest) is for the caller to refuse.
//
// # Use
//
//	m, vars, ok := schema.Find("PUT", "/nodes/pve01/qemu/100/config")
//	values, errs := m.Check(vars, schema.DecodeForm(body))
//
// errs maps each refused parameter to PVE's text; all of them are reported
// together, as PVE does in its 400 answer. Property strings are read with
// [Format.Parse] and written with [Format.Print]. Tests that want to know
// whether a key or sub-key exists, and what it admits, use [Lookup],
// [Method.Key] and [Format.Key].
//
// # The compact form
//
// pve.txt is read line by line; a line that starts in the first column opens a
// record, indented lines are its entries, # starts a comment line. Words are
// separated by blanks; a value that contains a blank or a quote is written as a
// Go string literal.
//
//	format NAME [check=VALIDATOR]
//	  ENTRY...
//	METHOD TEMPLATE NAME FLAG...
//	  allow PERMISSION
//	  ENTRY...
//
// A format is a property-string format. Names that PVE registers keep PVE's
// name; formats that PVE writes inline are named after the first parameter that
// uses them, with a leading dot. A format that several parameters share is
// written once.
//
// Method flags: protected (runs as root), proxy (is passed on to the node of
// the path), notoken (API tokens are refused), open (unknown parameters are
// accepted), returns=TYPE.
//
// Entries are
//
//	KEY TYPE ATTRIBUTE...
//	KEY[LOW-HIGH] TYPE ATTRIBUTE...
//	KEY -> TARGET [model=KEY]
//
// The second form stands for the numbered keys KEYLOW to KEYHIGH. The third is
// an alias inside a format; model names the key that receives the alias' own
// name (virtio=<mac> means model=virtio,macaddr=<mac>). TYPE is string,
// integer, number, boolean or array, with a question mark when the parameter is
// optional. Attributes are: default-key, min=, max=, minlen=, maxlen=, enum=
// (comma separated), re= (a Go regular expression, anchored by the checker),
// fmt= (a named check such as pve-node, or a format of this file), items= (the
// format of each array element), needs= (another parameter that must be given
// too), default=.
//
// Permissions are prefix expressions:
//
//	all | world | root
//	(perm PATH PRIVILEGE... [:any] [:if PARAMETER])
//	(and EXPR...) (or EXPR...)
//	(userid-param ARG) (userid-group PRIVILEGE... [:groups create|update])
//	(perm-modify PATH)
//
// ha.txt and jobs.txt have the same form. pve.txt is written by the generator in the gen directory from PVE's own
// description of its API; the generator is not needed to build or to run.
package schema
