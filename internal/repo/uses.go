package repo

import (
	"fmt"
	"path/filepath"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/yamldoc"
)

// SettingsPath is the absolute path of the proxops.yaml in force, or where one
// would stand.
func (r *Repo) SettingsPath() string {
	switch file := r.settings.File; {
	case filepath.IsAbs(file):
		return file
	case r.URLMode():
		return filepath.Join(r.opts.Dir, "proxops.yaml")
	}
	return filepath.Join(r.settingsDir(), "proxops.yaml")
}

// ReadSecrets reads a secrets file as it lies, named as SecretUses and
// Settings name it: from the root, or by an absolute path.
func (r *Repo) ReadSecrets(file string) ([]byte, error) {
	if filepath.IsAbs(file) {
		return readLimited(file)
	}
	return r.Tree().ReadFile(file, yamldoc.MaxBytes)
}

// ProcessUses lists the references of proxops.yaml into the process's own
// secrets-file.
func (r *Repo) ProcessUses() []SecretUse {
	s := r.settings
	var root *yamldoc.Node
	if data, err := readLimited(r.SettingsPath()); err == nil {
		if docs, problems := yamldoc.Parse(s.File, data); len(problems) == 0 && len(docs) == 1 {
			root = docs[0]
		}
	}
	refs := []namedRef{
		{"git.status.token", s.Git.Status.Token}, {"listen-auth", s.ListenAuth}, {"webhook-auth", s.WebhookAuth},
		{"coordination.etcd.password", s.Etcd.Password},
	}
	for i, n := range s.Notify {
		refs = append(refs, namedRef{fmt.Sprintf("notifications[%d].url", i), n.URL})
	}
	var out []SecretUse
	for _, ref := range refs {
		if ref.key != "" {
			line, col := field.PathPos(root, ref.path)
			out = append(out, SecretUse{s.File, line, col, ref.path, "secrets." + ref.key})
		}
	}
	return out
}
