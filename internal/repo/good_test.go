package repo

import "testing"

func TestGoodRepository(t *testing.T) {
	r := open(t, base().write(t))
	c, err := r.Load(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Resources) != 2 || c.Resources[0].Ref().String() != "VM:a" || c.Config.BaseURL != "https://pve1.example.org:8006" {
		t.Errorf("got %+v", c)
	}
	if c.Secrets.TokenID != "root@pam!proxops" || c.Secrets.User != "root@pam" || c.Secrets.Auth != "token" {
		t.Errorf("got %+v", c.Secrets)
	}
}
