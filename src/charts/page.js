// SPDX-License-Identifier: Apache-2.0
// What pages of reports have in common: values of the place in a chart that is pointed at.
"use strict";

function tableRow(tag, texts) {
	const row = document.createElement("tr");
	for (const text of texts) {
		const cell = document.createElement(tag);
		cell.textContent = text;
		row.append(cell);
	}
	return row;
}

// Places are the integers from area.first to area.last along the x axis of a panel.  `areaOf` has
// these of a panel; `describe` is what to show of a place; `guided` are the panels that mark it.
function showValues({ areaOf, describe, guided }) {
	const tip = document.getElementById("tip");
	let here = null; // the panel and place that are shown

	function hide() {
		tip.hidden = true;
		for (const guide of document.querySelectorAll(".guide"))
			guide.remove();
	}

	function read(panel) {
		const number = key => Number(panel.dataset[key]);
		return { left: number("left"), right: number("right"), top: number("top"),
			bottom: number("bottom"), ...areaOf(panel) };
	}

	function xOf(area, at) {
		const share = (at - area.first) / Math.max(1, area.last - area.first);
		return area.left + share * (area.right - area.left);
	}

	function mark(panel, at) {
		const area = read(panel), x = xOf(area, at);
		const guide = document.createElementNS("http://www.w3.org/2000/svg", "line");

		guide.setAttribute("class", "guide");
		for (const [key, value] of [["x1", x], ["x2", x], ["y1", area.top], ["y2", area.bottom]])
			guide.setAttribute(key, value);
		panel.append(guide);
	}

	// Beside the guide, on the side with more room, inside the window.
	function place(box, x, y) {
		const at = box.left + x, room = document.documentElement.clientWidth;
		const left = at > room / 2 ? at - tip.offsetWidth - 12 : at + 12;
		const top = Math.min(box.top + y + 8, window.innerHeight - tip.offsetHeight - 8);

		tip.style.left = `${Math.max(8, Math.min(left, room - tip.offsetWidth - 8))}px`;
		tip.style.top = `${Math.max(8, top)}px`;
	}

	function show(svg, panel, wanted) {
		const area = read(panel), box = svg.getBoundingClientRect();
		const scale = box.width / svg.viewBox.baseVal.width;
		const at = Math.max(area.first, Math.min(area.last, wanted));

		hide();
		for (const other of guided(svg, panel))
			mark(other, at);
		tip.replaceChildren(...describe(panel, at));
		tip.dataset.panel = panel.dataset.panel;
		here = { panel, at };
		tip.hidden = false;
		if (svg.id === "narrow")
			tip.removeAttribute("style");
		else
			place(box, xOf(area, at) * scale, area.top * scale);
	}

	function point(svg, event) {
		const box = svg.getBoundingClientRect();
		const scale = svg.viewBox.baseVal.width / box.width;
		const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;

		for (const panel of svg.querySelectorAll(".panel")) {
			const a = read(panel);

			if (y < a.top - 8 || y > a.bottom + 8 || x < a.left - 16 || x > a.right + 16)
				continue;
			const share = (x - a.left) / Math.max(1, a.right - a.left);
			show(svg, panel, Math.round(a.first + share * (a.last - a.first)));
			return;
		}
		hide();
	}

	// Left and right move by one place, up and down between the panels.
	function key(svg, event) {
		const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key] || 0;
		const turn = { ArrowUp: -1, ArrowDown: 1 }[event.key] || 0;
		const panels = [...svg.querySelectorAll(".panel")];

		if (event.key === "Escape")
			hide();
		if (!step && !turn)
			return;
		event.preventDefault();
		const now = tip.hidden ? -1 : panels.indexOf(here.panel);
		const next = Math.max(0, Math.min(panels.length - 1, Math.max(0, now) + turn));
		show(svg, panels[next], now < 0 ? 0 : here.at + step);
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
}
