// Package pve is a thin typed client of one Proxmox VE cluster. It keeps what
// a reconciler needs and most clients hide: unknown keys, config digests, what
// is pending, how a task ended, and whether a write may have been applied.
//
// A Reader can send nothing but GET requests, by type. A Client is a Reader
// that also writes, through a Node, and a Node exists only for the nodes of
// the cluster's allow-list. Every failed request gives an *Error whose Kind
// says what it means; no error, log line or panic holds a credential.
package pve
