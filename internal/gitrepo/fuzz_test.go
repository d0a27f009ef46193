package gitrepo

import (
	"strings"
	"testing"
)

// An allowed-signers file of any content gives signers or an error that names
// the file, and never an empty list that would refuse, or let in, everything.
func FuzzSigners(f *testing.F) {
	f.Add([]byte("ada@example.org ssh-ed25519 AAAA\n"))
	f.Add([]byte("* namespaces=\"git\",valid-after=\"20260101Z\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHKX1Z3nLzEzCgo2P0R6cT8l1Q3X0G8Q0rK8vQv2mJ4Y ada\n"))
	f.Add([]byte(pgpBegin + "\n\nxx\n" + pgpEnd + "\n"))
	f.Add([]byte(pgpBegin))
	f.Add([]byte("a cert-authority,\"x ssh-rsa x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseSigners("signers", text)
		if err == nil && len(s.ssh)+len(s.pgp) == 0 || err != nil && !strings.HasPrefix(err.Error(), "signers:") {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
