// Package client lets a PVE client that was written elsewhere work against the simulator: what it understands of the answers is an
// opinion that does not come from this repository. It is a module of its own, so that the client is no dependency of the product.
package client
