// SPDX-License-Identifier: Apache-2.0
// Toggles and hover values of a sweep's page.  Without this script the page still shows everything.
"use strict";
(() => {
	const codecs = JSON.parse(document.getElementById("data").textContent);
	const tip = document.getElementById("tip");
	const boxes = [...document.querySelectorAll("input[data-codec]")];
	const SVG = "http://www.w3.org/2000/svg";

	// --- Toggles ---------------------------------------------------------------------------

	function apply(box) {
		const name = CSS.escape(box.dataset.codec);
		for (const line of document.querySelectorAll(`g.line[data-codec="${name}"]`))
			line.classList.toggle("off", !box.checked);
	}

	function set(choose) {
		for (const box of boxes) {
			box.checked = choose(box);
			apply(box);
		}
	}

	const shownAtFirst = new Set(boxes.filter(b => b.checked).map(b => b.dataset.codec));
	for (const box of boxes)
		box.addEventListener("change", () => apply(box));
	document.getElementById("none").addEventListener("click", () => set(() => false));
	document.getElementById("all").addEventListener("click", () => set(() => true));
	document.getElementById("reset").addEventListener("click",
		() => set(box => shownAtFirst.has(box.dataset.codec)));
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

	function cells(tag, texts) {
		const row = document.createElement("tr");
		for (const text of texts) {
			const cell = document.createElement(tag);
			cell.textContent = text;
			row.append(cell);
		}
		return row;
	}

	function describe(panel, exponent) {
		const table = document.createElement("table");
		const on = new Set(boxes.filter(b => b.checked).map(b => b.dataset.codec));
		const found = codecs.filter(c => c.panel === panel && on.has(c.codec))
			.map(c => [c.codec, rowAt(c, exponent)]).filter(([, row]) => row);

		found.sort(([, a], [, b]) => b[4] - a[4]);
		table.append(cells("th", ["", "mean", "max", "exact"]));
		for (const [name, row] of found) {
			const over = row[7] === row[2];
			table.append(cells("td", over ? [name, "overflow", "", ""]
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

	// --- Pointing --------------------------------------------------------------------------

	function hide() {
		tip.hidden = true;
		for (const guide of document.querySelectorAll(".guide"))
			guide.remove();
	}

	function numbers(panel) {
		const read = key => Number(panel.dataset[key]);
		return { first: read("first"), last: read("last"), left: read("left"),
			right: read("right"), top: read("top"), bottom: read("bottom") };
	}

	function show(svg, panel, exponent) {
		const p = numbers(panel);
		const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
		const x = p.left + (exponent - p.first) * (p.right - p.left) / (p.last - p.first);
		const guide = document.createElementNS(SVG, "line");

		hide();
		guide.setAttribute("class", "guide");
		for (const [key, value] of [["x1", x], ["x2", x], ["y1", p.top], ["y2", p.bottom]])
			guide.setAttribute(key, value);
		panel.append(guide);
		tip.replaceChildren(range(exponent), describe(panel.dataset.panel, exponent));
		tip.dataset.exponent = exponent;
		tip.dataset.panel = panel.dataset.panel;
		tip.hidden = false;
		if (svg.id === "narrow")
			tip.removeAttribute("style");
		else
			place(svg.getBoundingClientRect(), x * scale, p.top * scale);
	}

	// Beside the guide, on the side with more room, inside the window.
	function place(box, x, y) {
		const at = box.left + x, room = document.documentElement.clientWidth;
		const left = at > room / 2 ? at - tip.offsetWidth - 12 : at + 12;
		const top = Math.min(box.top + y + 8, window.innerHeight - tip.offsetHeight - 8);

		tip.style.left = `${Math.max(8, Math.min(left, room - tip.offsetWidth - 8))}px`;
		tip.style.top = `${Math.max(8, top)}px`;
	}

	function point(svg, event) {
		const box = svg.getBoundingClientRect();
		const scale = svg.viewBox.baseVal.width / box.width;
		const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;

		for (const panel of svg.querySelectorAll(".panel")) {
			const p = numbers(panel);
			const share = (x - p.left) / (p.right - p.left);

			if (y < p.top || y > p.bottom || share < -0.02 || share > 1.02)
				continue;
			const exponent = Math.round(p.first + share * (p.last - p.first));
			show(svg, panel, Math.max(p.first, Math.min(p.last, exponent)));
			return;
		}
		hide();
	}

	// Left and right move by one exponent, up and down between the panels.
	function key(svg, event) {
		const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
		const turn = { ArrowUp: -1, ArrowDown: 1 }[event.key];
		const panels = [...svg.querySelectorAll(".panel")];
		let i = panels.findIndex(p => !tip.hidden && p.dataset.panel === tip.dataset.panel);

		if (event.key === "Escape")
			hide();
		if (!step && !turn)
			return;
		event.preventDefault();
		i = Math.max(0, Math.min(panels.length - 1, Math.max(i, 0) + (turn || 0)));
		const p = numbers(panels[i]);
		const from = tip.hidden ? 0 : Number(tip.dataset.exponent) + (step || 0);
		show(svg, panels[i], Math.max(p.first, Math.min(p.last, from)));
	}

	for (const svg of document.querySelectorAll(".chart > svg")) {
		svg.setAttribute("tabindex", "0");
		svg.addEventListener("pointermove", event => point(svg, event));
		svg.addEventListener("pointerdown", event => point(svg, event));
		svg.addEventListener("pointerleave", event => {
			if (event.pointerType === "mouse")
				hide();
		});
		svg.addEventListener("keydown", event => key(svg, event));
		svg.addEventListener("blur", hide);
	}
	window.addEventListener("scroll", hide, { passive: true });
})();
