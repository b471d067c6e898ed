// SPDX-License-Identifier: Apache-2.0
// The values of the charts in a replay's page.
(() => {
	const data = JSON.parse(document.getElementById("data").textContent);

	function show(value, panel) {
		if (value === null || value === undefined)
			return "\u2013";
		if (value === Infinity)
			return "\u221e";
		if (value === 0)
			return "0";
		if (panel.unit === "%")
			return `${value < 0.001 ? "<0.001" : Number(value.toPrecision(3))}%`;
		if (panel.unit === "ULP" && value < 1e6)
			return value.toLocaleString("en");
		return value.toExponential(2).replace("-", "\u2212");
	}

	// All panels at one step, and which tensor is the worst of the panel pointed at.
	function describe(here, at) {
		const head = document.createElement("div"), name = document.createElement("div");
		const table = document.createElement("table");
		const tensor = data.panels[here].tensor[at];

		head.textContent = `Step ${data.first + at}`;
		table.append(tableRow("th", ["", "all", "worst"]));
		data.panels.forEach((panel, i) => {
			const row = tableRow("td", [panel.title, show(panel.total[at], panel),
				show(panel.worst[at], panel)]);
			row.classList.toggle("here", i === here);
			table.append(row);
		});
		if (data.panels[here].total[at] === null)
			name.textContent = "This step was skipped.";
		else if (tensor !== null)
			name.textContent = `Worst: ${data.names[tensor]}`;
		return [head, table, name];
	}

	// The same step is marked in every panel.
	showValues({
		areaOf: () => ({ first: 0, last: data.n - 1 }),
		describe: (panel, at) => describe(Number(panel.dataset.panel), at),
		guided: svg => svg.querySelectorAll(".panel"),
	});
})();
