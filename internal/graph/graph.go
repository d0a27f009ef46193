// Package graph orders references into levels and names the cycle.
package graph
