package repo

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// defaultPort is where PVE's API listens.
const defaultPort = "8006"

// normalURL checks the URL of a PVE API and spells it one way: lower case,
// with its port, without path. Two spellings of one endpoint become equal.
func normalURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		return "", errors.New("is not of the form https://host or https://host:8006")
	}
	scheme := strings.ToLower(u.Scheme)
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	ip, ipErr := netip.ParseAddr(host)
	if ipErr == nil {
		ip = ip.Unmap()
		host = ip.String()
	}
	switch {
	case u.User != nil:
		return "", errors.New("holds a user or password; credentials do not belong into a URL: use the secrets-file or the environment")
	case u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("is not of the form https://host or https://host:8006: nothing may follow the port")
	case u.Path != "" && u.Path != "/" && strings.TrimSuffix(u.Path, "/") != "/api2/json":
		return "", errors.New("is not of the form https://host or https://host:8006: leave the path out")
	case scheme == "http" && host != "localhost" && !(ipErr == nil && ip.IsLoopback()):
		return "", errors.New("plain http is allowed to a loopback address only, since credentials would cross the network in the clear: use https")
	case scheme != "https" && scheme != "http":
		return "", fmt.Errorf("scheme %q is not https", u.Scheme)
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("port %s is not in 1-65535", port)
	}
	if ipErr == nil && ip.Is6() {
		host = "[" + host + "]"
	}
	return scheme + "://" + host + ":" + port, nil
}

func checkFingerprint(v string) error {
	raw, err := hex.DecodeString(strings.ReplaceAll(v, ":", ""))
	if err != nil || len(raw) != 32 {
		return errors.New("is the SHA-256 fingerprint of a certificate: 32 hex pairs, with or without colons")
	}
	return nil
}
