package pvesim

import "slices"

// routes is the whole API: every owner keeps the table of its part beside its handlers.
func routes() []route {
	return slices.Concat(
		clusterRoutes(), nodeRoutes(), nodeReadRoutes(), taskRoutes(), qemuRoutes(), lxcRoutes(), storageRoutes(), authRoutes(), accessRoutes(), outsideRoutes(), poolRoutes(), mappingRoutes(), jobRoutes(), firewallRoutes(), indexRoutes(),
	)
}
