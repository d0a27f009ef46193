// Package sops reads and edits a cluster's secrets.sops.yaml inside the
// process: no sops binary is needed, and what either of the two writes the
// other opens.
//
// The document, decrypted, is
//
//	secrets:                  # flat: a name and a text
//	    proxops-token: …
//	cloud-init:
//	    ssh-keys: {ops: ssh-ed25519 …}
//	    passwords: {web: …}
//
// and a value of it is named by its dot path: secrets.proxops-token,
// cloud-init.ssh-keys.ops.
//
// The format (tree walk, value cipher, MAC, metadata block, YAML store) is the
// SOPS project's own code. Its store package knows the key types of every
// cloud, so these imports cost about 27 MB of binary and 17 ms of start;
// no smaller set of them exists. The data key is unwrapped by filippo.io/age
// itself, because SOPS reports "no identity" and "not your identity" with one
// text and reads the environment of the process while it looks.
//
// Texts of errors from SOPS, YAML and strconv quote their input, which here is
// a secret. So no such error is ever wrapped or printed: every error of this
// package is an [Error] written here, with a file, a reference and a position.
package sops
