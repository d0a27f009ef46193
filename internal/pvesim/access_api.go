package pvesim

func accessRoutes() []route {
	return []route{{"GET", "/access/roles", (*World).roleList}}
}

func (w *World) roleList(*Request) (any, error) {
	builtin := builtinRoles()
	out := []map[string]any{}
	for _, id := range sortedKeys(w.Access.Roles) {
		row := map[string]any{"roleid": id, "privs": joined(w.Access.Roles[id], ",")}
		if _, ok := builtin[id]; ok {
			row["special"] = 1
		}
		out = append(out, row)
	}
	return out, nil
}
