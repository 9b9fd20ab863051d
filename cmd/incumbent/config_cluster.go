package main

import (
	"cmp"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// The settings of the cluster: those that every member has alike.

func configGet(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "get [NAME]",
		Short: "print the settings of the cluster",
		Long: `Get prints the settings that all members have alike, or NAME alone with those that
are given for some only (NAME@WHOM). With -o json it prints what each does and may
be, too. What is a member's own is shown by 'incumbent config show'.
Exit code 3: there is no setting NAME.`,
		Example:           "  incumbent config get\n  incumbent config get quota.sessions\n  incumbent config get kv.quota-bytes -o json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: settingNames,
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			return withClient(c, func(cl *client.Client) error {
				all, err := cl.Settings().Get(c.Context(), first(args))
				if err != nil {
					return err
				}
				return printClusterSettings(env, form, all)
			})
		},
	}
	addServerFlags(c)
	addOutput(c)
	return c
}

func printClusterSettings(env *environment, form string, all []*apiv1.ClusterSetting) error {
	t := &table{header: []string{"setting", "value", "default", "set at", "bounds"}}
	for _, s := range all {
		at := "-"
		if s.ModifiedIndex > 0 {
			at = strconv.FormatUint(s.ModifiedIndex, 10)
		}
		t.row(s.Name, s.Value, s.Default, at, s.Bounds)
	}
	return printRecords(env.stdout, form, all, t)
}

func configSet(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "set NAME VALUE",
		Short: "change a setting of the cluster",
		Long: `Set gives a setting of the cluster a value, which acts at once on every member.
Behind an @ stands for whom, where a setting may be given for some only: a principal
or namespace, or what several begin with and a *. --if-index changes it only if it
was last set at that index, 0: only if it has its default.
Exit code 3: there is no setting NAME. Exit code 6: it was set otherwise.`,
		Example: `  incumbent config set kv.quota-bytes 4GiB
  incumbent config set quota.mode observe
  incumbent config set 'quota.sessions@agent:fleet-*' 50000`,
		Args:              exactArgs("NAME", "VALUE"),
		ValidArgsFunction: settingNames,
		RunE: func(c *cobra.Command, args []string) error {
			return changeSetting(c, env, args[0], func(s client.Settings, opts ...client.SetOption) (*apiv1.SetSettingResponse, error) {
				return s.Set(c.Context(), args[0], args[1], opts...)
			})
		},
	}
	return settingChanges(c)
}

func configUnset(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:               "unset NAME",
		Short:             "give a setting of the cluster its default again",
		Long:              "Unset gives a setting its default again; one that is given for some only is gone.\nExit code 3: there is no setting NAME. Exit code 6: it was set otherwise.",
		Example:           "  incumbent config unset kv.quota-bytes\n  incumbent config unset 'quota.sessions@agent:fleet-*'",
		Args:              exactArgs("NAME"),
		ValidArgsFunction: settingNames,
		RunE: func(c *cobra.Command, args []string) error {
			return changeSetting(c, env, args[0], func(s client.Settings, opts ...client.SetOption) (*apiv1.SetSettingResponse, error) {
				return s.Unset(c.Context(), args[0], opts...)
			})
		},
	}
	return settingChanges(c)
}

// settingChanges gives a command the flags of those that change a setting.
func settingChanges(c *cobra.Command) *cobra.Command {
	c.Flags().Uint64("if-index", 0, "only if it was last set at this index, 0: only if it has its default")
	addServerFlags(c)
	addOutput(c)
	return c
}

func changeSetting(c *cobra.Command, env *environment, name string, change func(client.Settings, ...client.SetOption) (*apiv1.SetSettingResponse, error)) error {
	var opts []client.SetOption
	if c.Flags().Changed("if-index") {
		at, _ := c.Flags().GetUint64("if-index")
		opts = append(opts, client.IfSetAt(incumbent.Index(at)))
	}
	return withClient(c, func(cl *client.Client) error {
		res, err := change(cl.Settings(), opts...)
		if err != nil {
			return err
		}
		return printMessage(c, env, res, "%s is %s since index %d", name, res.Value, res.Index)
	})
}

func configHistory(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "history [NAME]",
		Short: "print who changed which setting of the cluster",
		Long: `History prints what has changed of all settings of the cluster, or of NAME, newest
first: the newest 500 changes are kept. The time is that of the member that took the
change.`,
		Example:           "  incumbent config history\n  incumbent config history quota.sessions --limit 10",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: settingNames,
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			limit, _ := c.Flags().GetUint32("limit")
			return withClient(c, func(cl *client.Client) error {
				all, err := cl.Settings().History(c.Context(), first(args), limit)
				if err != nil {
					return err
				}
				return printSettingChanges(env, form, all)
			})
		},
	}
	c.Flags().Uint32("limit", 0, "changes at most; 0: all that are kept")
	addServerFlags(c)
	addOutput(c)
	return c
}

func printSettingChanges(env *environment, form string, all []*apiv1.SettingChange) error {
	t := &table{header: []string{"index", "at", "setting", "from", "to", "by", "address"}}
	for _, s := range all {
		t.row(strconv.FormatUint(s.Index, 10), day(s.AtUnixMs), s.Name, cmp.Or(s.Before, "default"), cmp.Or(s.After, "default"), orDash(s.Principal), orDash(s.Address))
	}
	return printRecords(env.stdout, form, all, t)
}

// first is the argument, "" if there is none.
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// settingNames completes the name of a setting of the cluster.
func settingNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, d := range settings.All() {
		names = append(names, cobra.CompletionWithDesc(d.Name, d.Does))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
