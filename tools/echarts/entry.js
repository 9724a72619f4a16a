// The part of Apache ECharts that the pages use. Whatever is not named here is left out of the bundle.
import { CustomChart, LineChart, ParallelChart } from "echarts/charts";
import { DataZoomInsideComponent, DataZoomSliderComponent, GraphicComponent, GridComponent, ParallelComponent } from "echarts/components";
import { init, use, version } from "echarts/core";
import { CanvasRenderer, SVGRenderer } from "echarts/renderers";

use([
  CustomChart, LineChart, ParallelChart,
  DataZoomInsideComponent, DataZoomSliderComponent, GraphicComponent, GridComponent, ParallelComponent,
  CanvasRenderer, SVGRenderer,
]);

export { init, version };
