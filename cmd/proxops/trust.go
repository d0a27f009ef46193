package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/show"
	"github.com/spf13/cobra"
)

func (a *app) trustCmd() *cobra.Command {
	return &cobra.Command{
		Use: "trust --cluster NAME", GroupID: "more", Args: noArgs,
		Short: "Show a cluster's certificate and the line that trusts it",
		Long: `Fetch the certificate of every endpoint of the cluster, sending nothing, and
print it with the fingerprint line for clusters/<cluster>/config.yaml, whatever
state manifests and secrets are in. Compare the fingerprint with the node's own before you add the line:
  openssl x509 -in /etc/pve/local/pve-ssl.pem -noout -fingerprint -sha256
(or /etc/pve/local/pveproxy-ssl.pem where there is one).`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.trust(cmd.Context()) },
	}
}

func (a *app) trust(ctx context.Context) error {
	s, name, err := a.single(ctx, true)
	if err != nil {
		return err
	}
	c, err := s.repo.ConfigOf(name)
	if err != nil {
		return err
	}
	var errs []error
	var prints []string
	trusted := true
	for _, url := range append([]string{c.BaseURL}, c.Endpoints...) {
		if strings.HasPrefix(url, "http://") {
			fmt.Fprintf(a.out, "%s: plain http, there is no certificate\n", url)
			continue
		}
		cert, err := pve.Peek(ctx, url)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		a.certificate(url, cert)
		trusted = trusted && cert.Trusted
		prints = append(prints, cert.Fingerprint)
	}
	if len(prints) > 0 {
		if trusted {
			fmt.Fprintln(a.out, "The system's roots vouch for it: no line is needed. To pin it anyway, add")
		} else {
			fmt.Fprintln(a.out, "Compare it with the node's own, then add")
		}
		fmt.Fprintf(a.out, "\n      fingerprint: %q\n\nto pve.clusters.%s in %s.\n", strings.Join(prints, ","), name, c.File)
	}
	return errors.Join(errs...)
}

func (a *app) certificate(url string, c pve.Certificate) {
	issuer := c.Issuer
	if c.SelfSigned {
		issuer += " (itself)"
	}
	fmt.Fprintln(a.out, show.Bold(a.style(a.out), url))
	for _, l := range [][2]string{
		{"subject", c.Subject}, {"issuer", issuer}, {"names", strings.Join(c.Names, ", ")},
		{"valid", c.NotBefore.UTC().Format(time.DateOnly) + " to " + c.NotAfter.UTC().Format(time.DateOnly)}, {"SHA-256", c.Fingerprint},
	} {
		fmt.Fprintf(a.out, "  %-8s %s\n", l[0], show.Clean(l[1]))
	}
	if now := time.Now(); now.After(c.NotAfter) || now.Before(c.NotBefore) {
		fmt.Fprintln(a.out, "  it is not valid now; a pinned fingerprint is trusted all the same")
	}
	fmt.Fprintln(a.out)
}
