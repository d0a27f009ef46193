package cases_test

import (
	"fmt"
	"strings"

	"github.com/proxops/proxops/internal/pvesim"
)

type guest = pvesim.Guest

// print is a config, key by key in order.
func print(s pvesim.Section) string {
	var b strings.Builder
	for _, k := range s.Keys() {
		fmt.Fprintf(&b, "%s: %s\n", k, s[k])
	}
	return b.String()
}
