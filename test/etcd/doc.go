// Package etcd tests agents that share clusters through a real etcd server. It
// is a module of its own, so that the server is no dependency of the program.
package etcd
