package pvesim

import (
	"fmt"
	"time"
)

// Sizes of the recorded machine's files and disks, in bytes.
const (
	recordedRoot   = 270553174016
	recordedMemory = 25276502016
)

// Recorded returns one of the clean states that the recordings of the real thing begin with: base, lvmthin or offline. They are a
// lone node pve01 with two directory storages; lvmthin adds an LVM-thin pool; offline is a cluster whose second node is down.
func Recorded(variant string) (State, error) {
	s := State{
		Nodes: []*Node{{
			Name: "pve01", IP: "192.0.2.11", CPUs: 2, Memory: recordedMemory, RootTotal: recordedRoot, RootUsed: 30 << 30, Bridges: []string{"vmbr0"},
			Lacks: []string{LacksAppArmor, Lacks8021q, LacksCgroup2},
			Files: map[string]*NodeFile{
				"/srv/mirror/tiny.raw":      {Size: 3145728, Virtual: 3145728, Format: "raw"},
				"/srv/mirror/tiny.img":      {Size: 3145728, Virtual: 3145728, Format: "raw"},
				"/srv/mirror/tiny.qcow2":    {Size: 196616, Virtual: 4 << 20, Format: "qcow2"},
				"/srv/mirror/notqcow.qcow2": {Size: 300, Virtual: 300},
			},
		}},
		Storages: []*Storage{
			{
				ID: "local", Type: storageDir, Content: []string{contentISO, contentVztmpl, contentBackup, contentImport}, Total: recordedRoot,
				Props: map[string]string{"path": "/var/lib/vz"},
			},
			{
				ID: "local-dir", Type: storageDir, Content: []string{contentImages, contentRootdir}, Total: recordedRoot,
				Props: map[string]string{"path": "/var/lib/pvedata"},
			},
		},
		Volumes:    map[string]*Volume{},
		Datacenter: map[string]string{"keyboard": "en-us"},
		Access:     recordedAccess(),
	}
	addFile(&s, "local:iso/seed.iso", contentISO, "iso", 358400, 358400)
	addFile(&s, "local:import/seed.qcow2", contentImport, "qcow2", 4<<20, 196616)
	addFile(&s, "local:import/seed.raw", contentImport, "raw", 3145728, 3145728)
	addFile(&s, "local:vztmpl/debian-13-tiny_13.1-1_amd64.tar.gz", contentVztmpl, "tgz", 1068126, 1068126)
	switch variant {
	case "base":
	case "lvmthin":
		s.Storages = append(s.Storages, &Storage{
			ID: "local-lvm", Type: storageLVMThin, Content: []string{contentImages, contentRootdir}, Total: 12 << 30,
			Props: map[string]string{"vgname": "pve", "thinpool": "data"},
		})
	case "offline":
		s.ClusterName = "realpve"
		s.Nodes[0].ID = 1
		s.Nodes = append(s.Nodes, &Node{Name: "pve02", ID: 2, IP: "192.0.2.12", Offline: true, Bridges: []string{"vmbr0"}})
		s.Guests = map[int]*Guest{9002: {VMID: 9002, Kind: kindQemu, Node: "pve02", Config: Section{"memory": "64"}}}
	default:
		return State{}, fmt.Errorf("recorded state %q: there is base, lvmthin and offline", variant)
	}
	return s, nil
}

func addFile(s *State, volid, content, format string, size, used int64) {
	s.Volumes[volumeKey("pve01", volid)] = &Volume{
		ID: volid, Node: "pve01", Content: content, Format: format, Size: size, Used: used, Created: time.Now(),
	}
}

func recordedAccess() Access {
	secret := func(digit string) string { // 11111111-1111-4111-8111-111111111111 and so on
		d4 := digit + digit + digit
		return fmt.Sprintf("%[1]s%[1]s-%[1]s-4%[2]s-8%[2]s-%[1]s%[1]s%[1]s", d4+digit, d4)
	}
	user := func(id, password string, tokens ...*Token) *User {
		u := &User{ID: id, Enabled: true, Tokens: map[string]*Token{}}
		u.SetPassword(password)
		for _, t := range tokens {
			u.Tokens[t.ID] = t
		}
		return u
	}
	a := Access{Users: map[string]*User{
		"root@pam":  user("root@pam", "pvetest1", &Token{ID: "full", Secret: secret("1")}),
		"admin@pve": user("admin@pve", "adminpass1", &Token{ID: "full", Secret: secret("2")}),
		"gitops@pve": user("gitops@pve", "gitopspass1", &Token{ID: "ops", Secret: secret("3")},
			&Token{ID: "ro", Secret: secret("4"), Privsep: true}, &Token{ID: "none", Secret: secret("5"), Privsep: true}),
	}}
	grant := func(kind, who, role string) {
		a.ACL = append(a.ACL, ACLEntry{Path: "/", Kind: kind, Who: who, Role: role, Propagate: true})
	}
	grant("user", "admin@pve", "Administrator")
	for _, role := range []string{"PVEVMAdmin", "PVEDatastoreAdmin", "PVEAuditor", "PVESDNUser"} {
		grant("user", "gitops@pve", role)
	}
	grant("token", "gitops@pve!ro", "PVEAuditor")
	return a
}
