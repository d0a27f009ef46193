package coord

import (
	"crypto/tls"
	"fmt"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// TLS makes the TLS settings for etcd from files; all empty gives nil. The
// client's certificate is read again for every connection.
func TLS(caFile, certFile, keyFile string) (*tls.Config, error) {
	if caFile == "" && certFile == "" && keyFile == "" {
		return nil, nil
	}
	info := transport.TLSInfo{TrustedCAFile: caFile, CertFile: certFile, KeyFile: keyFile}
	cfg, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("coordination.etcd: ca-file, cert-file, key-file: %w", err)
	}
	return cfg, nil
}
