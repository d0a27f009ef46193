package pvesim

func authRoutes() []route {
	return []route{
		{"GET", "/version", (*World).version},
		{"GET", "/access/ticket", (*World).ticketIndex},
		{"POST", "/access/ticket", (*World).login},
	}
}

func (w *World) version(*Request) (any, error) {
	return map[string]any{"version": "9.2.11", "release": "9.2", "repoid": "14a22df35955d97d"}, nil
}

// ticketIndex is a method that PVE has for formatters only.
func (w *World) ticketIndex(*Request) (any, error) { return nil, nil }
