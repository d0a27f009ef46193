// Package gitrepo is the only package that knows git. It finds the repository
// around a directory, reads files from a work tree or from a commit, asks the
// history who removed a declaration, and keeps a mirror of a remote branch
// whose head may have to be signed.
package gitrepo
