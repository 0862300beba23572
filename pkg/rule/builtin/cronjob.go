package builtin

import "github.com/rulefleet/rulefleet/api/v1alpha1"

const cronJobSuspended = "kube_cronjob_spec_suspend"

// cronJobFailing fires when a Job of a CronJob failed, and none has succeeded since it was created. Failed Jobs stay
// when later ones succeed (failedJobsHistoryLimit), and with successfulJobsHistoryLimit 0, the successful ones do not, so
// the time of the last success decides. The Jobs are found by their owner: their names begin like those of others.
func cronJobFailing(m metrics) v1alpha1.AlertSpec {
	job := func(metric string, matchers ...string) string {
		return enclose("max by (job_name) ", m.series("", metric, "", matchers...))
	}
	failed := all(
		job("kube_job_created"),
		job("kube_job_failed", `condition="true"`)+" > 0",
		job("kube_job_owner", `owner_kind="CronJob"`, `owner_name="$(workload.name)"`),
	)
	return v1alpha1.AlertSpec{
		Alert: "CronJobFailing",
		Expr: enclose("max", failed) + "\n>\n" +
			eitherOf(m.workload("kube_cronjob_status_last_successful_time"), "vector(0)") + "\n" +
			"unless\n" +
			m.workload(cronJobSuspended) + " > 0",
		For:      "1m",
		Severity: warning,
		Annotations: notes("The last Job of "+theWorkload+" failed.",
			"The Job that "+theWorkload+" created at {{ $value | humanizeTimestamp }} failed, and none has succeeded since."+
				" Look at the events of the Job and at the logs of its pods (kubectl logs job/NAME)."+
				" The alert ends when a later Job succeeds, or when you delete the failed Job."),
	}
}

// cronJobMissed fires when a CronJob was due and created no Job. The time of the next Job counts from the last one, so
// it stays in the past until a Job is created, which startingDeadlineSeconds allows until later. There are three
// reasons why a Job is missing by intention: the CronJob is suspended, or was at that time, or the previous Job still
// runs and the policy is Forbid. kube-state-metrics before 2.15 ignores the time zone of a CronJob.
func cronJobMissed(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "CronJobMissed",
		Expr: "time()\n-\n" + m.workload("kube_cronjob_next_schedule_time") + "\n-\n" +
			eitherOf(m.workload("kube_cronjob_spec_starting_deadline_seconds"), "vector(0)") + " > 0\n" +
			"unless\n" +
			m.highest(cronJobSuspended, "[1d]") + " > 0\n" +
			"unless (\n" + indent(all(
			m.workload("kube_cronjob_status_active")+" > 0",
			m.workload("kube_cronjob_info", `concurrency_policy="Forbid"`),
		)) + "\n)",
		For:      "5m",
		Severity: warning,
		Annotations: notes(theWorkload+" was not run when it was due.",
			theWorkload+" created no Job. The deadline for the Job passed {{ $value | humanizeDuration }} ago. It is the scheduled time, plus startingDeadlineSeconds."+
				" Look at the events of the CronJob: a quota or a policy may keep it from creating a Job, or it missed its startingDeadlineSeconds."+
				" If other CronJobs are late as well, look at the health and the logs of kube-controller-manager."),
	}
}
