// SPDX-License-Identifier: Apache-2.0
// Toggles of a sweep's page, and the values of its chart.
(() => {
	const codecs = JSON.parse(document.getElementById("data").textContent);
	const boxes = [...document.querySelectorAll("input[data-codec]")];
	const checked = () => new Set(boxes.filter(b => b.checked).map(b => b.dataset.codec));

	// --- Toggles ---------------------------------------------------------------------------

	function apply(box) {
		const name = CSS.escape(box.dataset.codec);
		for (const line of document.querySelectorAll(`g.line[data-codec="${name}"]`))
			line.classList.toggle("off", !box.checked);
	}

	function onClick(id, choose) {
		document.getElementById(id).addEventListener("click", () => {
			for (const box of boxes) {
				box.checked = choose(box);
				apply(box);
			}
		});
	}

	const shownAtFirst = checked();
	for (const box of boxes)
		box.addEventListener("change", () => apply(box));
	onClick("none", () => false);
	onClick("all", () => true);
	onClick("reset", box => shownAtFirst.has(box.dataset.codec));
	// A browser may have kept the boxes of the last visit.
	boxes.forEach(apply);

	// --- Values ----------------------------------------------------------------------------

	// Rows are [first exponent, last exponent, patterns, exact, mean, max, ULP, overflow].
	function rowAt(codec, exponent) {
		return codec.rows.find(row => row[0] <= exponent && exponent <= row[1]);
	}

	function error(value) {
		return value ? value.toExponential(2).replace("-", "\u2212") : "0";
	}

	function percent(part, whole) {
		const p = 100 * part / whole;
		if (part === whole || !part)
			return `${p}%`;
		return p < 0.0001 ? "<0.0001%" : `${p.toFixed(p < 1 ? 4 : 2)}%`;
	}

	function values(panel, exponent) {
		const table = document.createElement("table"), on = checked();
		const found = codecs.filter(c => c.panel === panel && on.has(c.codec))
			.map(c => [c.codec, rowAt(c, exponent)]).filter(([, row]) => row);

		found.sort(([, a], [, b]) => b[4] - a[4]);
		table.append(tableRow("th", ["", "mean", "max", "exact"]));
		for (const [name, row] of found) {
			const over = row[7] === row[2];
			table.append(tableRow("td", over ? [name, "overflow", "", ""]
				: [name, error(row[4]), error(row[5]), percent(row[3], row[2])]));
		}
		return table;
	}

	function power(exponent) {
		const up = document.createElement("sup");
		up.textContent = String(exponent).replace("-", "\u2212");
		return ["2", up];
	}

	function range(exponent) {
		const head = document.createElement("div");
		if (exponent === -127)
			head.append("|x| below ", ...power(-126), " (FP32 subnormal)");
		else
			head.append("|x| from ", ...power(exponent), " to ", ...power(exponent + 1));
		return head;
	}

	showValues({
		areaOf: panel => ({ first: Number(panel.dataset.first), last: Number(panel.dataset.last) }),
		describe: (panel, at) => [range(at), values(panel.dataset.panel, at)],
		guided: (svg, panel) => [panel],
	});
})();
